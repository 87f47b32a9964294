"""The numbers of an iteration, by hand on six trajectories."""

from __future__ import annotations

import math

import pytest
from builders import turn_row, turns_table

from starpo.config.reward import FilterConfig
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import mark_kept, score_turns

WON = {(0, 0), (1, 1), (2, 0), (2, 1)}
FAILED = (1, 1)
"""Its environment raised, so that what it earned counts nowhere."""


def test_rates_and_counts_are_of_what_is_not_quarantined() -> None:
    turns = turns_table(
        *[
            turn_row(
                group=group,
                member=member,
                environment="bandit" if group == 2 else "frozen_lake",
                success=(group, member) in WON,
                reward=float((group, member) in WON),
                trajectory_stop="environment_error" if (group, member) == FAILED else "terminated",
            )
            for group in range(3)
            for member in range(2)
        ]
    )
    scored = mark_kept(score_turns(turns, bind_terms({"environment": {}})), FilterConfig(keep_ratio=1.0))
    metrics = rollout_metrics(turns, scored)
    assert (metrics["trajectories"], metrics["quarantined"], metrics["environment_errors"]) == (6, 1, 1)
    assert metrics["success"] == metrics["return"] == pytest.approx(3 / 5)
    # Residuals summed by group: 0.4 - 0.6, -0.6, 0.4 + 0.4; CR1 of three groups.
    variance = 3 / 2 * (0.2**2 + 0.6**2 + 0.8**2) / 5**2
    assert metrics["success_error"] == pytest.approx(math.sqrt(variance))
    assert (metrics["groups"], metrics["groups_kept"]) == (3, 1)
    assert metrics["rollout_tokens"] == 12, "the engine sampled the failed one's too"
    assert (metrics["success/frozen_lake"], metrics["success/bandit"]) == (pytest.approx(1 / 3), 1)
    assert (metrics["groups_kept/frozen_lake"], metrics["groups_kept/bandit"]) == (1, 0)

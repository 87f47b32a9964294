"""Every trajectory of a suite replayed: what failures are put down to, and what luck had to do with it."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

from starpo.environments.base import TextEnvironment
from starpo.evaluation.failures import failure_of, labels_of
from starpo.evaluation.intervals import Interval, mean_interval
from starpo.evaluation.luck import chance_of_plan, has_closed_form
from starpo.evaluation.metrics import with_bounds
from starpo.evaluation.replay import Replay, replay
from starpo.evaluation.trajectories import Episode, Trajectories, episodes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Diagnosis:
    """What the replays of one suite say."""

    metrics: dict[str, float | str]
    """``failures.<label>`` and the numbers on luck; the keys are explained in ``DIAGNOSIS``."""
    labels: list[dict[str, Any]]
    """One row per label: group, member, label, turn, chance (of the same plan under fresh luck, or None)."""


def diagnose(env: TextEnvironment, t: Trajectories, *, seed: int) -> Diagnosis:
    """Label and weigh every trajectory.

    Args:
        env: the suite's environment.
        t: its trajectories.
        seed: ``evaluation.seed``, for fresh luck.
    """
    suite = str(t.suite["stream"])
    rows: list[dict[str, Any]] = []
    wins: list[tuple[int, float]] = []  # (prompt, chance that the plan fails under fresh luck)
    slips: list[tuple[int, float]] = []  # (prompt, chance that the plan succeeds under fresh luck)
    lucky = unfaithful = False
    for episode in episodes(t):
        replayed = replay(env, episode)
        unfaithful |= not replayed.faithful
        lucky |= replayed.lucky
        failure = failure_of(env, episode, replayed)
        if failure is None:
            wins.append((episode.group, _chance_to_fail(env, episode, replayed, suite, seed)))
            continue
        chance = None
        if failure.unlucky:
            chance = chance_of_plan(env, episode, suite=suite, seed=seed)
            slips.append((episode.group, chance))
        rows.append(
            {
                "group": episode.group,
                "member": episode.member,
                "label": str(failure.label),
                "turn": failure.turn,
                "chance": chance,
            }
        )
    counts = Counter(row["label"] for row in rows)
    metrics: dict[str, float | str] = {
        f"failures.{label}": counts[label] / len(t) for label in labels_of(env)
    }
    if unfaithful:
        logger.warning(
            "%s: replays of the suite %s went otherwise than recorded: the environment's answers depend on more "
            "than its seeds and actions, and nothing can be said about luck",
            type(env).__name__,
            suite,
        )
        return Diagnosis(metrics | {"luck_method": "unknown"}, rows)
    metrics["luck_method"] = "none" if not lucky else "exact" if has_closed_form(env) else "replay"
    if wins:
        share = _mean(wins)
        metrics |= with_bounds("luck_failed_share", share) if lucky else {"luck_failed_share": share.estimate}
    if slips:
        metrics |= with_bounds("slip_plan_success", _mean(slips))
    return Diagnosis(metrics, rows)


def _chance_to_fail(env: TextEnvironment, episode: Episode, replayed: Replay, suite: str, seed: int) -> float:
    """Chance that a won trajectory's actions fail under fresh luck: 0 where nothing was drawn."""
    if not (replayed.lucky and replayed.faithful):
        return 0.0
    return 1 - chance_of_plan(env, episode, suite=suite, seed=seed)


def _mean(values: list[tuple[int, float]]) -> Interval:
    groups, chances = zip(*values, strict=True)
    interval = mean_interval(chances, groups)
    return Interval(interval.estimate, max(interval.low, 0.0), min(interval.high, 1.0))

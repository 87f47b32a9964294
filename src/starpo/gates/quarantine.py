"""The rules that concern one trajectory: a breach quarantines it, and the run goes on.

A quarantined trajectory has zero weight and no part in group statistics. Only when too many of an iteration are, the
cause is not theirs and the run stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from starpo.gates import measures
from starpo.gates.expected import Expected
from starpo.gates.facts import Facts, Key
from starpo.gates.measures import highest, infinite, lengths, lowest, not_finite
from starpo.gates.rule import NOTHING, Limit, Rule, only

OF_TURNS = (
    Rule("n_tokens", "every turn has a sampled token", lengths("response_ids"), Limit(1), "no_sampled_token"),
    Rule("n_context", "every turn has context", lengths("context_ids"), Limit(1), "no_context"),
    Rule(
        "lacking",
        "every sampled token has a log-prob",
        lambda facts: facts.lengths("response_ids") - facts.lengths("response_logprobs"),
        only(0),
        "lengths_disagree",
    ),
    Rule("infinite", "log-probs are finite", infinite("response_logprobs"), NOTHING, "logprob_not_finite"),
    Rule(
        "largest_logprob",
        "log-probs are at most gates.quarantine.max_logprob",
        highest("response_logprobs"),
        lambda expected: Limit(high=expected.quarantine.max_logprob),
        "logprob_above_zero",
    ),
    Rule(
        "smallest_logprob",
        "log-probs are at least gates.quarantine.min_logprob",
        lowest("response_logprobs"),
        lambda expected: Limit(low=expected.quarantine.min_logprob),
        "logprob_below_floor",
    ),
    Rule("reward", "every turn has a finite reward", not_finite("reward"), NOTHING, "reward_not_finite"),
    Rule(
        "return_excess",
        "returns lie in the environment's return_range",
        measures.return_excess,
        lambda expected: Limit(high=expected.quarantine.return_tolerance),
        "return_out_of_range",
    ),
)
"""Of turns. The first that a trajectory breaks is the reason that the table gives."""

OF_TRAINING = (
    Rule(
        "trajectory_stop",
        "no exception of the environment ended a trajectory",
        measures.environment_errors,
        NOTHING,
        "environment_error",
    ),
    *OF_TURNS,
)
"""Of turns that are learned from."""

OF_SCORES = (
    Rule(
        "largest_reward",
        "no turn's reward after all terms exceeds gates.quarantine.max_absolute_reward",
        measures.largest_rewards,
        lambda expected: Limit(high=expected.quarantine.max_absolute_reward),
        "reward_too_large",
    ),
    Rule(
        "return_error",
        "the return is the sum of the turn rewards",
        measures.return_errors,
        lambda expected: Limit(high=expected.quarantine.return_tolerance),
        "return_is_not_the_sum",
    ),
)
"""Of scored trajectories."""

NO_ROW = Rule(
    "members",
    "every group has rollout.group_size members",
    measures.members,
    lambda expected: only(expected.group_size),
    "no_row",
)
"""Of trajectories that are missing from their table of turns."""

FAULTS = {rule.fault: rule.says for rule in (NO_ROW, *OF_TRAINING, *OF_SCORES)}
"""Reason in the table -> what must hold and does not."""


def turn_faults(turns: pa.Table, expected: Expected) -> dict[Key, str]:
    """Trajectories of a table of turns that must not be learned from -> reason, a key of ``FAULTS``."""
    return faults_of(Facts(turns, expected), OF_TRAINING) if turns.num_rows else {}


def score_faults(scored: pa.Table, expected: Expected) -> dict[Key, str]:
    """The same of trajectories that are being scored.

    Args:
        scored: a row per trajectory with group, member, return, turn_rewards and whether it is quarantined already.
        expected: limits.
    """
    return faults_of(Facts(scored, expected), OF_SCORES) if scored.num_rows else {}


def faults_of(facts: Facts, rules: Iterable[Rule]) -> dict[Key, str]:
    """Trajectories that are missing or break one of the rules -> reason."""
    faults = dict.fromkeys(facts.missing, NO_ROW.fault)
    for rule in rules:
        for number in np.unique(facts.index[rule.broken(facts)]):
            faults.setdefault(facts.keys[number], rule.fault)
    return faults


def quarantined(scored: pa.Table) -> dict[Key, str]:
    """Quarantined trajectories of a scored table -> reason."""
    rows = scored.filter(scored["quarantined"])
    names = zip(rows["group"].to_pylist(), rows["member"].to_pylist(), strict=True)
    return dict(zip(names, rows["reason"].to_pylist(), strict=True))


def describe(faults: Mapping[Key, str], total: int, *, most: int = 3) -> str:
    """``2 of 256 trajectories (lengths_disagree 2), first: group 3 member 1``."""
    counts = ", ".join(f"{reason} {count}" for reason, count in Counter(faults.values()).most_common())
    first = ", ".join(f"group {group} member {member}" for group, member in sorted(faults)[:most])
    return f"{len(faults)} of {total} trajectories ({counts}), first: {first}"

"""Which trajectories must not be learned from, and why.

A fault of one row concerns its trajectory alone: it is quarantined (zero weight, no part in group statistics) and
the run goes on. Only when too many of an iteration are, the cause is not theirs and the run stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import QuarantineConfig
from starpo.environments.registry import make

Key = tuple[int, int]
"""(group, member) of a trajectory."""

Range = tuple[float, float]
"""Smallest and largest environment return of one episode."""

FAULTS: dict[str, str] = {
    "no_row": "the environment failed at reset, or the first prompt left no room for a response",
    "environment_error": "an exception of the environment ended the trajectory",
    "no_sampled_token": "a turn holds no sampled token",
    "no_context": "a turn holds no context token",
    "lengths_disagree": "a turn's response_ids and response_logprobs differ in length",
    "logprob_not_finite": "a log-prob is NaN or infinite",
    "logprob_above_zero": "a log-prob is above gates.quarantine.max_logprob",
    "logprob_below_floor": "a log-prob is below gates.quarantine.min_logprob",
    "reward_not_finite": "a turn's reward is NaN or infinite",
    "return_out_of_range": "the sum of the environment's rewards is outside the environment's return_range",
    "reward_too_large": "a turn's reward after all terms exceeds gates.quarantine.max_absolute_reward",
    "return_is_not_the_sum": "the return differs from the sum of the turn rewards",
}
"""Reason in the table -> what it means. The first that applies is given."""


def return_ranges(environment: EnvironmentConfig) -> dict[str, Range]:
    """Return range by environment name, as the environments declare it."""
    ranges = {}
    for member in environment.members:
        low, high = make(member.name, **member.arguments).return_range
        name = environment.name if environment.mixture is None else member.known_as
        ranges[name] = (float(low), float(high))
    return ranges


def turn_faults(
    turns: pa.Table, rules: QuarantineConfig, ranges: Mapping[str, Range] | None = None
) -> dict[Key, str]:
    """Faulty trajectories of a table of turns -> reason, a key of ``FAULTS``.

    Args:
        turns: a table with the schema ``TURNS``.
        rules: limits of log-probs and rewards.
        ranges: return range by environment name; environments that are not named have no bound.
    """
    if not turns.num_rows:
        return {}
    keys, index = np.unique(
        np.stack([turns["group"].to_numpy(), turns["member"].to_numpy()], axis=1), axis=0, return_inverse=True
    )
    index = index.reshape(-1)
    tokens = list_lengths(turns, "response_ids")
    low, high, finite = extremes_of(turns, "response_logprobs")
    reward = turns["reward"].to_numpy().astype(np.float64)
    returns = np.zeros(len(keys))
    np.add.at(returns, index, np.nan_to_num(reward, posinf=0.0, neginf=0.0))
    excess = return_excess(returns, _environments(turns, index, len(keys)), ranges or {})
    per_turn = {
        "no_sampled_token": tokens == 0,
        "no_context": list_lengths(turns, "context_ids") == 0,
        "lengths_disagree": tokens != list_lengths(turns, "response_logprobs"),
        "logprob_not_finite": ~finite,
        "logprob_above_zero": high > rules.max_logprob,
        "logprob_below_floor": low < rules.min_logprob,
        "reward_not_finite": ~np.isfinite(reward),
    }
    faults: dict[Key, str] = {}
    for reason, bad in per_turn.items():
        for at in np.unique(index[bad]):
            faults.setdefault((int(keys[at, 0]), int(keys[at, 1])), reason)
    for at in np.flatnonzero(excess > rules.return_tolerance):
        faults.setdefault((int(keys[at, 0]), int(keys[at, 1])), "return_out_of_range")
    return faults


def score_fault(rewards: NDArray[np.float64], total: float, rules: QuarantineConfig) -> str | None:
    """The fault of one scored trajectory, or None.

    Args:
        rewards: [K], reward per turn, all terms summed.
        total: its return.
        rules: limits.
    """
    if np.abs(rewards).max(initial=0.0) > rules.max_absolute_reward:
        return "reward_too_large"
    if abs(float(rewards.sum()) - total) > rules.return_tolerance:
        return "return_is_not_the_sum"
    return None


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


def too_many(faults: Mapping[Key, str], total: int, max_share: float) -> str | None:
    """The problem in words where more than ``max_share`` of ``total`` trajectories are faulty, else None."""
    if not total or len(faults) <= max_share * total:
        return None
    meanings = "; ".join(
        f"{name}: {FAULTS[name]}" for name in dict.fromkeys(faults.values()) if name in FAULTS
    )
    return f"quarantined: {describe(faults, total)}; at most {max_share:.1%} may be" + (
        f" ({meanings})" if meanings else ""
    )


def list_lengths(table: pa.Table, column: str) -> NDArray[np.int64]:
    """[rows], length of each list; a null list has none."""
    return pc.fill_null(pc.list_value_length(table[column]), 0).to_numpy().astype(np.int64)


def extremes_of(
    table: pa.Table, column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """[rows] each: smallest and largest finite entry of the list column (0 without any), and whether all are."""
    lengths = list_lengths(table, column)
    values = pc.list_flatten(table[column]).to_numpy().astype(np.float64)
    owners = np.repeat(np.arange(table.num_rows), lengths)
    finite = np.isfinite(values)
    low, high = np.full(table.num_rows, np.inf), np.full(table.num_rows, -np.inf)
    np.minimum.at(low, owners[finite], values[finite])
    np.maximum.at(high, owners[finite], values[finite])
    every = np.ones(table.num_rows, dtype=bool)
    every[owners[~finite]] = False
    some = np.isfinite(low)
    return np.where(some, low, 0.0), np.where(some, high, 0.0), every


def return_excess(
    returns: NDArray[np.float64], environments: NDArray[np.object_], ranges: Mapping[str, Range]
) -> NDArray[np.float64]:
    """[N], by how much each return lies outside its environment's range; 0 inside and for unknown names."""
    bounds = np.array([ranges.get(str(name), (-np.inf, np.inf)) for name in environments]).reshape(-1, 2)
    return np.maximum(0.0, np.maximum(bounds[:, 0] - returns, returns - bounds[:, 1]))


def _environments(turns: pa.Table, index: NDArray[np.int64], count: int) -> NDArray[np.object_]:
    names = np.empty(count, dtype=object)
    names[index] = turns["environment"].to_numpy()
    return names

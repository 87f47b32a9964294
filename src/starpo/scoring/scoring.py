"""From turns to scored trajectories, and the filter's verdict on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import GatesConfig, QuarantineConfig
from starpo.config.reward import FilterConfig, RewardConfig
from starpo.gates.expected import Expected, Range, return_ranges
from starpo.gates.quarantine import score_faults, turn_faults
from starpo.rewards.terms import Term, Turns
from starpo.rewards.total import bind_terms, score, trajectory_return, turn_rewards
from starpo.seeds import Purpose, SeedKey
from starpo.store.schemas import SCHEMA_VERSION, SCORED

_READ = (
    "iteration",
    "policy_step",
    "environment",
    "split",
    "stream",
    "group",
    "member",
    "context_ids",
    "response_ids",
    "stop_reason",
    "executed",
    "format_valid",
    "reward",
    "success",
    "trajectory_stop",
)

_EXACT = pa.schema(
    [
        *(SCORED.field(name) for name in ("group", "member", "quarantined")),
        ("turn_rewards", pa.list_(pa.float64())),
        ("return", pa.float64()),
    ]
)
"""What the rules of scores look at, before it is rounded."""


def score_turns(
    turns: pa.Table,
    terms: Mapping[str, Term],
    rules: QuarantineConfig | None = None,
    ranges: Mapping[str, Range] | None = None,
    scales: Mapping[str, float] | None = None,
) -> pa.Table:
    """One scored row per trajectory, nothing filtered yet; rows of ``turns`` are in order.

    A trajectory that an environment's error ended, or that breaks a rule, is quarantined: zero weight, no part in
    group statistics.

    Args:
        turns: a table with the schema ``TURNS``.
        terms: reward terms by name.
        rules: limits of log-probs and rewards; None: the defaults.
        ranges: return range by environment name; None: no bounds.
        scales: factor on the environment's rewards by its name, before the reward terms; absent names have 1.
    """
    expected = Expected(quarantine=rules or QuarantineConfig(), ranges=ranges or {})
    faults = turn_faults(turns, expected)
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in turns.select(list(_READ)).to_pylist():
        rows.setdefault((row["group"], row["member"]), []).append(row)
    scored = [
        _score_one(own, terms, scales or {}) | {"quarantined": key in faults} for key, own in rows.items()
    ]
    # Not in the table's float32: the limits are those of what was summed.
    exact = pa.Table.from_pylist(scored, schema=_EXACT)
    faults = score_faults(exact, expected) | faults
    for row in scored:
        reason = faults.get((row["group"], row["member"]), "")
        row |= {"quarantined": bool(reason), "reason": reason}
    return pa.Table.from_pylist(scored, schema=SCORED)


def score_rollouts(
    turns: pa.Table, reward: RewardConfig, gates: GatesConfig, environment: EnvironmentConfig
) -> pa.Table:
    """:func:`score_turns` by the parameters of a run."""
    scales = {member.known_as: member.reward_scale for member in environment.mixture or ()}
    return score_turns(turns, bind_terms(reward.terms), gates.quarantine, return_ranges(environment), scales)


def _score_one(
    rows: list[dict[str, Any]],
    terms: Mapping[str, Term],
    scales: Mapping[str, float],
) -> dict[str, Any]:
    """The row of a trajectory, but for whether it is at fault."""
    last = rows[-1]
    rewards = np.array([row["reward"] for row in rows], dtype=np.float64)
    turns = Turns(
        # A reward that is no number is a fault; reward terms and sums need one all the same.
        env_reward=np.where(np.isfinite(rewards), rewards, 0.0) * scales.get(last["environment"], 1.0),
        format_valid=np.array([row["format_valid"] for row in rows], dtype=bool),
        response_tokens=np.array([len(row["response_ids"] or ()) for row in rows], dtype=np.int64),
        stop_reason=tuple(row["stop_reason"] for row in rows),
        success=bool(last["success"]),
    )
    scored = score(turns, terms)
    per_turn, total = turn_rewards(scored, len(rows)), trajectory_return(scored)
    sampled = int(turns.response_tokens.sum())
    return {
        **{name: last[name] for name in _READ[:7]},
        "turn_rewards": per_turn.tolist(),
        "environment_return": float(np.where(np.isfinite(rewards), rewards, 0.0).sum()),
        "terms": json.dumps({name: float(vector.sum()) for name, vector in scored.items()}, sort_keys=True),
        "return": total,
        "success": turns.success,
        "turns": len(rows),
        "actions": sum(len(row["executed"]) for row in rows),
        "response_tokens": sampled,
        "tokens": sampled + sum(len(row["context_ids"] or ()) for row in rows),
        "format_valid_share": float(turns.format_valid.mean()),
        "trajectory_stop": last["trajectory_stop"],
        "group_mean": 0.0,
        "group_std": 0.0,
        "kept": False,
        "schema_version": SCHEMA_VERSION,
    }


def mark_kept(scored: pa.Table, config: FilterConfig, seed: int = 0) -> pa.Table:
    """Fill group statistics, ``kept`` and ``reason``; no row is dropped. ``seed`` is the run's, for mode ``random``."""
    from starpo.algorithms.filters import select_groups  # noqa: PLC0415 - loads torch

    rows = scored.to_pylist()
    usable = [row for row in rows if not row["quarantined"]]
    if not usable:
        return scored
    iteration = usable[0]["iteration"]
    result = select_groups(
        [row["return"] for row in usable],
        [row["group"] for row in usable],
        keep_ratio=config.keep_ratio,
        mode=config.mode,
        min_std=config.min_std,
        keep_zero_spread=config.keep_zero_spread,
        # A group's lot does not depend on how many there are, so a further round changes none.
        lot=lambda group: (
            SeedKey(seed, Purpose.FILTER, iteration=iteration, group=group).generator().random()
        ),
    )
    at = {int(group): position for position, group in enumerate(result.group_ids)}
    for row in usable:
        position = at[row["group"]]
        row["group_mean"] = float(result.mean[position])
        row["group_std"] = float(result.std[position])
        row["kept"] = bool(result.kept[position])
        row["reason"] = result.reasons[position]
    return pa.Table.from_pylist(rows, schema=SCORED)

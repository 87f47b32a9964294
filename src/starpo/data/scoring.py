"""From turns to scored trajectories, and the filter's verdict on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.algorithms.filters import FilterResult, select_groups
from starpo.config import FilterConfig
from starpo.data.schemas import SCHEMA_VERSION, SCORED
from starpo.rewards.terms import Term, Turns
from starpo.rewards.total import score, trajectory_return, turn_rewards

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


def score_turns(turns: pa.Table, terms: Mapping[str, Term]) -> pa.Table:
    """One scored row per trajectory, nothing filtered yet; rows of ``turns`` are in order.

    A trajectory that an environment's error ended is quarantined: zero weight, no part in group statistics.
    """
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in turns.select(list(_READ)).to_pylist():
        rows.setdefault((row["group"], row["member"]), []).append(row)
    return pa.Table.from_pylist([_score_one(own, terms) for own in rows.values()], schema=SCORED)


def _score_one(rows: list[dict[str, Any]], terms: Mapping[str, Term]) -> dict[str, Any]:
    last = rows[-1]
    turns = Turns(
        env_reward=np.array([row["reward"] for row in rows], dtype=np.float64),
        format_valid=np.array([row["format_valid"] for row in rows], dtype=bool),
        response_tokens=np.array([len(row["response_ids"]) for row in rows], dtype=np.int64),
        stop_reason=tuple(row["stop_reason"] for row in rows),
        success=bool(last["success"]),
    )
    scored = score(turns, terms)
    quarantined = last["trajectory_stop"] == "environment_error"
    sampled = int(turns.response_tokens.sum())
    return {
        **{name: last[name] for name in _READ[:7]},
        "turn_rewards": turn_rewards(scored, len(rows)).tolist(),
        "environment_return": float(turns.env_reward.sum()),
        "terms": json.dumps({name: float(vector.sum()) for name, vector in scored.items()}, sort_keys=True),
        "return": trajectory_return(scored),
        "success": turns.success,
        "turns": len(rows),
        "actions": sum(len(row["executed"]) for row in rows),
        "response_tokens": sampled,
        "tokens": sampled + sum(len(row["context_ids"]) for row in rows),
        "format_valid_share": float(turns.format_valid.mean()),
        "trajectory_stop": last["trajectory_stop"],
        "group_mean": 0.0,
        "group_std": 0.0,
        "quarantined": quarantined,
        "kept": False,
        "reason": "environment_error" if quarantined else "",
        "schema_version": SCHEMA_VERSION,
    }


def mark_kept(scored: pa.Table, config: FilterConfig) -> pa.Table:
    """Fill group statistics, ``kept`` and ``reason``; no row is dropped."""
    rows = scored.to_pylist()
    usable = [row for row in rows if not row["quarantined"]]
    if not usable:
        return scored
    result: FilterResult = select_groups(
        [row["return"] for row in usable],
        [row["group"] for row in usable],
        keep_ratio=config.keep_ratio,
        mode=config.mode,
        min_std=config.min_std,
        keep_zero_spread=config.keep_zero_spread,
    )
    at = {int(group): position for position, group in enumerate(result.group_ids)}
    for row in usable:
        position = at[row["group"]]
        row["group_mean"] = float(result.mean[position])
        row["group_std"] = float(result.std[position])
        row["kept"] = bool(result.kept[position])
        row["reason"] = result.reasons[position]
    return pa.Table.from_pylist(rows, schema=SCORED)

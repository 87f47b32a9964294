"""Rows of the table of turns as the trajectory that reward terms see."""

from __future__ import annotations

import json
import math
from typing import Any

from starpo.rewards.trajectory import States, Trajectory, Turn

READ = (
    "iteration",
    "policy_step",
    "environment",
    "split",
    "stream",
    "group",
    "member",
    "observation",
    "context_ids",
    "response",
    "response_ids",
    "stop_reason",
    "thought",
    "actions",
    "executed",
    "format_valid",
    "reward",
    "effective",
    "next_observation",
    "terminated",
    "success",
    "trajectory_stop",
    "info",
)
"""Columns that scoring reads; the first seven are copied."""


def stored_trajectory(rows: list[dict[str, Any]], states: States, scale: float) -> Trajectory:
    """One trajectory's rows, in order; ``scale`` is the factor on its environment's rewards."""
    last = rows[-1]
    return Trajectory(
        turns=tuple(_turn(row, states, scale) for row in rows),
        success=bool(last["success"]),
        stop=last["trajectory_stop"] or "",
        environment=last["environment"],
        iteration=last["iteration"],
        group=last["group"],
        member=last["member"],
    )


def _turn(row: dict[str, Any], states: States, scale: float) -> Turn:
    # A reward that is no number is a fault; reward terms and sums need one all the same.
    reward = row["reward"] if row["reward"] is not None and math.isfinite(row["reward"]) else 0.0
    return Turn(
        **{name: row[name] or "" for name in ("observation", "thought", "response", "next_observation")},
        response_ids=row["response_ids"] or (),
        actions=tuple(row["actions"] or ()),
        executed=tuple(row["executed"] or ()),
        effective=row["effective"] or 0,
        format_valid=bool(row["format_valid"]),
        stop_reason=row["stop_reason"] or "",
        reward=reward * scale,
        terminated=bool(row["terminated"]),
        success=bool(row["success"]),
        info=json.loads(row["info"] or "{}"),
        environment=row["environment"],
        states=states,
    )

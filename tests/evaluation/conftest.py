"""Builders of small tables of turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from starpo.data.schemas import SCHEMA_VERSION, TURNS

DEFAULTS: dict[str, Any] = {
    "iteration": 0,
    "policy_step": 0,
    "environment": "frozen_lake",
    "split": "test",
    "stream": "lake",
    "group": 0,
    "member": 0,
    "turn": 0,
    "instance_seed": 11,
    "dynamics_seed": 12,
    "sampling_seed": 13,
    "temperature": 0.5,
    "top_p": 1.0,
    "observation": "P___G",
    "context_ids": [1, 2, 3],
    "response": "<answer>Right</answer>",
    "response_ids": [4, 5],
    "response_logprobs": [-0.5, -1.5],
    "stop_reason": "stop",
    "thought": "",
    "actions": ["Right"],
    "executed": ["Right"],
    "format_valid": True,
    "reward": 0.0,
    "effective": 1,
    "next_observation": "_P__G",
    "terminated": False,
    "truncated": False,
    "success": False,
    "trajectory_stop": "turn_limit",
    "error": "",
    "info": "{}",
    "schema_version": SCHEMA_VERSION,
}


def turn(**changes: Any) -> dict[str, Any]:
    """One row of ``TURNS``."""
    assert changes.keys() <= DEFAULTS.keys()
    return DEFAULTS | changes


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TURNS)


def outcomes(successes: list[list[bool]], **changes: Any) -> pa.Table:
    """One turn per trajectory; ``successes[prompt][sample]``. The reward is 1 where solved."""
    return table(
        [
            turn(
                group=group,
                member=member,
                instance_seed=group,
                success=bool(won),
                reward=float(won),
                **changes,
            )
            for group, row in enumerate(successes)
            for member, won in enumerate(row)
        ]
    )


@pytest.fixture
def build() -> Callable[..., Any]:
    """``build.turn``, ``build.table`` and ``build.outcomes``."""

    class Build:
        turn = staticmethod(turn)
        table = staticmethod(table)
        outcomes = staticmethod(outcomes)

    return Build  # type: ignore[return-value]

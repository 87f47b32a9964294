"""Builders of small tables of turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from builders import TURN_ROW

from starpo.store.schemas import TURNS

DEFAULTS: dict[str, Any] = TURN_ROW | {
    "split": "test",
    "stream": "lake",
    "temperature": 0.5,
    "observation": "P___G",
    "next_observation": "_P__G",
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

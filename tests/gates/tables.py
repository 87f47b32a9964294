"""Sound tables of one iteration, for tests that break one thing in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from builders import turn_row, turns_table

from starpo.config.reward import FilterConfig
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.splits import Split, split_of
from starpo.gates.expected import Expected
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.store.schemas import SCHEMA_VERSION, TURNS, UPDATES

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows]

GROUPS, SIZE, TURNS_EACH = 4, 2, 2


class Undeclared(TextEnvironment):
    """Stands for the tables' environment: its instances belong to a split by what is shown first, any text."""

    rules, action_names, return_range = "", ("Go",), (0.0, 1.0)

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        return "map", {"success": False}

    def _act(self, action: str) -> StepResult:
        return "map", 0.0, True, False, {"success": False, "effective": True}


EXPECTED = Expected(
    max_quarantined_share=0.3,
    iteration=0,
    policy_step=0,
    groups=GROUPS,
    group_size=SIZE,
    ranges={"frozen_lake": (0.0, 1.0)},
    names={"frozen_lake": f"{__name__}:Undeclared"},
)
"""What the sound tables are."""


def observation(split: Split, number: int = 0) -> str:
    """The ``number``-th text whose hash falls into ``split``."""
    found = (text for text in map("map {}".format, range(10_000)) if split_of(text) is split)
    return [text for text, _ in zip(found, range(number + 1), strict=False)][number]


def turn_rows(split: Split = Split.TRAIN) -> Rows:
    """Turns of sound rollouts; the second member of each group reaches the goal."""
    return [
        turn_row(
            split=split.value,
            stream=split.value,
            group=group,
            member=member,
            turn=turn,
            observation=observation(split, group) if turn == 0 else "later",
            reward=float(member == 1 and turn == TURNS_EACH - 1),
        )
        for group in range(GROUPS)
        for member in range(SIZE)
        for turn in range(TURNS_EACH)
    ]


def scored_table(rows: Rows) -> pa.Table:
    """Scores of the rows, with every group of spread kept."""
    scored = score_turns(turns_table(*rows), bind_terms({"environment": {}}), ranges=EXPECTED.ranges)
    return mark_kept(scored, FilterConfig(keep_ratio=1.0))


def update_rows() -> Rows:
    """What an update over the sound rollouts could have seen."""
    shared = {name: turn_row()[name] for name in UPDATES.names if name in TURNS.names}
    lists = {
        "advantages": [0.5, -0.5],
        "values": [0.0, 0.1],
        "learner_logprobs": [-0.5, -1.5],
        "ratios": [1.0, 1.1],
    }
    return [
        shared | lists | {"group": group, "turn": turn, "schema_version": SCHEMA_VERSION}
        for group in range(GROUPS)
        for turn in range(TURNS_EACH)
    ]


def metrics() -> dict[str, Any]:
    """Metrics of a sound iteration."""
    return {
        "iteration": 0,
        "policy_step": 0,
        "status": "trained",
        "timestamp": 1_700_000_000_000,
        "success": 0.5,
        "return": -3.0,
        "entropy": 1.2,
        "approx_kl": 0.01,
        "clip_high_share": 0.1,
        "gradient_norm": 2.0,
        "policy_loss": -0.2,
        "explained_variance": -4.0,
    }


def put(row: int, **values: Any) -> Change:
    """Set columns of one row."""
    return lambda rows: [old | values if number == row else old for number, old in enumerate(rows)]


def put_all(**values: Any) -> Change:
    """Set columns of every row."""
    return lambda rows: [old | values for old in rows]


def drop(wanted: Callable[[dict[str, Any]], bool]) -> Change:
    """Remove the rows that are wanted."""
    return lambda rows: [row for row in rows if not wanted(row)]

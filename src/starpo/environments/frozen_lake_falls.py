"""Why a player fell into a hole: by its own plan, by a slip, or by its plan after a slip that it could not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from starpo.environments.frozen_lake import (
    ACTIONS,
    FROZEN,
    HOLE,
    HOLE_AFTER_SLIP,
    HOLE_BY_PLAN,
    HOLE_BY_SLIP,
    Lake,
    neighbours,
)
from starpo.environments.records import Failure, Step


def fall_of(steps: Sequence[Step]) -> Failure | None:
    """The fall that ended an episode with these steps, whose states are lakes; None if it ended on ice."""
    if not steps:
        return None
    last = cast(Lake, steps[-1].after)
    if last.cells[last.player] != HOLE:
        return None
    label = _cause(steps)
    return Failure(label, steps[-1].turn, unlucky=label != HOLE_BY_PLAN)


def _cause(steps: Sequence[Step]) -> str:
    turn = [step for step in steps if step.turn == steps[-1].turn]
    lake = cast(Lake, turn[-1].before)
    if lake.cells[_ahead(lake, lake.player, turn[-1].action)] != HOLE:
        return HOLE_BY_SLIP
    # The turn as the policy meant it: from where it last looked, without slips.
    cell = cast(Lake, turn[0].before).player
    for step in turn:
        if lake.cells[cell] == FROZEN:
            cell = _ahead(lake, cell, step.action)
    return HOLE_BY_PLAN if lake.cells[cell] == HOLE else HOLE_AFTER_SLIP


def _ahead(lake: Lake, cell: int, action: str) -> int:
    return neighbours(lake.size)[cell][ACTIONS.index(action)]

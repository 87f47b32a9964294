"""Why a trajectory failed: exactly one label each, from its replay.

The labels are tried in the order of ``LABELS``; the first whose condition holds is the trajectory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from starpo.agent.records import StopReason
from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import ACTIONS, FROZEN, HOLE, FrozenLake, Lake, neighbours
from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_deadlock import first_deadlock
from starpo.environments.sokoban_room import Room
from starpo.evaluation.replay import Replay, Step
from starpo.evaluation.trajectories import Episode


class Label(StrEnum):
    """What a failure is put down to."""

    ENVIRONMENT_ERROR = "environment_error"
    WRONG_ARM = "wrong_arm"
    LOST_DRAW = "lost_draw"
    HOLE_BY_PLAN = "hole_by_plan"
    HOLE_BY_SLIP = "hole_by_slip"
    HOLE_AFTER_SLIP = "hole_after_slip"
    DEADLOCK = "deadlock"
    ENDED = "ended"
    CUT_OFF = "cut_off"
    FORMAT = "format"
    LOOP = "loop"
    NO_EFFECT = "no_effect"
    TURN_LIMIT = "turn_limit"
    ACTION_LIMIT = "action_limit"
    TOKEN_LIMIT = "token_limit"
    ENVIRONMENT_LIMIT = "environment_limit"


LABELS: Final[dict[Label, str]] = {
    Label.ENVIRONMENT_ERROR: "the environment raised an exception",
    Label.WRONG_ARM: "Bandit: the arm with the lower mean was chosen",
    Label.LOST_DRAW: (
        "Bandit: the better arm was chosen, which is a success, and paid nothing: luck; counted beside the failures"
    ),
    Label.HOLE_BY_PLAN: (
        "FrozenLake: the action's own direction led into a hole, as the turn's actions do when none slips"
    ),
    Label.HOLE_BY_SLIP: "FrozenLake: a slip led into the hole; the action's own direction did not",
    Label.HOLE_AFTER_SLIP: (
        "FrozenLake: the action's own direction led into a hole, but only because an earlier slip of the same turn, "
        "which the policy could not see, had moved the player; without slips the turn's actions meet no hole"
    ),
    Label.DEADLOCK: (
        "Sokoban: the last position cannot be solved by any number of moves; the turn is that of the push that "
        "sealed it"
    ),
    Label.ENDED: "the environment ended the episode, unsolved, in none of the ways above",
    Label.CUT_OFF: (
        "at least half of the turns executed nothing, and more than half of those ran into the token limit; the "
        "turn is the first of them"
    ),
    Label.FORMAT: "at least half of the turns executed nothing, for want of a legal answer; the turn is the first",
    Label.LOOP: (
        "at least half of the executed actions, and at least two, led back to a state of the same trajectory; the "
        "turn is that of the first"
    ),
    Label.NO_EFFECT: "more than half of the executed actions changed nothing; the turn is that of the first",
    Label.TURN_LIMIT: "none of the above, and all turns were used",
    Label.ACTION_LIMIT: "none of the above, and all actions were used",
    Label.TOKEN_LIMIT: "none of the above, and no token was left for a further turn",
    Label.ENVIRONMENT_LIMIT: "none of the above, and the environment's own step limit was reached",
}
"""Labels with their conditions, in the order in which they are tried."""

_ONLY_OF: Final[dict[Label, type[TextEnvironment]]] = {
    Label.WRONG_ARM: Bandit,
    Label.LOST_DRAW: Bandit,
    Label.HOLE_BY_PLAN: FrozenLake,
    Label.HOLE_BY_SLIP: FrozenLake,
    Label.HOLE_AFTER_SLIP: FrozenLake,
    Label.DEADLOCK: Sokoban,
}

_LIMITS: Final = {
    StopReason.TURN_LIMIT.value: Label.TURN_LIMIT,
    StopReason.ACTION_LIMIT.value: Label.ACTION_LIMIT,
    StopReason.LENGTH.value: Label.TOKEN_LIMIT,
}


@dataclass(frozen=True)
class Failure:
    """A label with its place."""

    label: Label
    """Why."""
    turn: int
    """The turn that decided it, from 0."""


def labels_of(env: TextEnvironment) -> list[Label]:
    """The labels that can occur in an environment."""
    return [label for label in LABELS if isinstance(env, _ONLY_OF.get(label, TextEnvironment))]


def failure_of(env: TextEnvironment, episode: Episode, replayed: Replay) -> Failure | None:
    """The trajectory's label; None where it solved its task (and, in Bandit, was paid)."""
    last = len(episode.turns) - 1
    steps = replayed.steps if replayed.faithful else ()
    if episode.stop == StopReason.ENVIRONMENT_ERROR:
        return None if episode.success else Failure(Label.ENVIRONMENT_ERROR, last)
    if episode.success:
        unpaid = isinstance(env, Bandit) and episode.returned == 0
        return Failure(Label.LOST_DRAW, last) if unpaid else None
    return _fatal(env, steps) or _other(episode, steps, last)


def _fatal(env: TextEnvironment, steps: Sequence[Step]) -> Failure | None:
    """What cannot be made good again."""
    if not steps:
        return None
    if isinstance(env, Bandit):
        return Failure(Label.WRONG_ARM, steps[-1].turn)
    if isinstance(env, FrozenLake):
        lake = cast(Lake, steps[-1].after)
        return Failure(_fall(steps), steps[-1].turn) if lake.cells[lake.player] == HOLE else None
    if isinstance(env, Sokoban):
        rooms = [cast(Room, step.after) for step in steps]
        sealed = first_deadlock(rooms)
        return None if sealed is None else Failure(Label.DEADLOCK, steps[sealed].turn)
    return None


def _fall(steps: Sequence[Step]) -> Label:
    turn = [step for step in steps if step.turn == steps[-1].turn]
    lake = cast(Lake, turn[-1].before)
    if lake.cells[_ahead(lake, lake.player, turn[-1].action)] != HOLE:
        return Label.HOLE_BY_SLIP
    # The turn as the policy meant it: from where it last looked, without slips.
    cell = cast(Lake, turn[0].before).player
    for step in turn:
        if lake.cells[cell] == FROZEN:
            cell = _ahead(lake, cell, step.action)
    return Label.HOLE_BY_PLAN if lake.cells[cell] == HOLE else Label.HOLE_AFTER_SLIP


def _ahead(lake: Lake, cell: int, action: str) -> int:
    return neighbours(lake.size)[cell][ACTIONS.index(action)]


def _other(episode: Episode, steps: Sequence[Step], last: int) -> Failure:
    if episode.turns[-1].terminated:
        return Failure(Label.ENDED, last)
    idle = [number for number, turn in enumerate(episode.turns) if not turn.executed]
    if 2 * len(idle) >= len(episode.turns):
        cut = sum(episode.turns[number].cut_off for number in idle)
        return Failure(Label.CUT_OFF if 2 * cut > len(idle) else Label.FORMAT, idle[0])
    returns = _returns(steps)
    if len(returns) >= 2 and 2 * len(returns) >= len(steps):
        return Failure(Label.LOOP, returns[0].turn)
    idle_steps = [step for step in steps if not step.effective]
    if 2 * len(idle_steps) > len(steps):
        return Failure(Label.NO_EFFECT, idle_steps[0].turn)
    return Failure(_LIMITS.get(str(episode.stop), Label.ENVIRONMENT_LIMIT), last)


def _returns(steps: Sequence[Step]) -> list[Step]:
    """Effective steps into a state that the trajectory had been in before."""
    if not steps:
        return []
    seen = {steps[0].before}
    returns = []
    for step in steps:
        if step.effective and step.after in seen:
            returns.append(step)
        seen.add(step.after)
    return returns

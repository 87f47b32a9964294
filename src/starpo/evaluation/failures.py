"""Why a trajectory failed: exactly one label each, from its replay.

An environment's own labels come after an exception of the environment and before all others, which any environment can
have. Those are tried in the order of ``LABELS``; the first whose condition holds is the trajectory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from starpo.agent.records import StopReason
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, check_failure
from starpo.environments.records import Failure, PlayedEpisode, Step
from starpo.evaluation.replay import Replay
from starpo.evaluation.trajectories import Episode


class Label(StrEnum):
    """What a failure is put down to."""

    ENVIRONMENT_ERROR = "environment_error"
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

_LIMITS: Final = {
    StopReason.TURN_LIMIT.value: Label.TURN_LIMIT,
    StopReason.ACTION_LIMIT.value: Label.ACTION_LIMIT,
    StopReason.LENGTH.value: Label.TOKEN_LIMIT,
}


def labels_of(env: TextEnvironment) -> list[str]:
    """The labels that can occur in an environment, in the order in which they are tried."""
    return [Label.ENVIRONMENT_ERROR.value, *env.failure_labels, *(each.value for each in list(LABELS)[1:])]


def failure_of(env: TextEnvironment, episode: Episode, replayed: Replay) -> Failure | None:
    """The trajectory's label; None where it solved its task, unless the environment has a label for that too.

    Raises ``ContractError`` where the environment's own answer is no :class:`Failure` with a label of its own.
    """
    last = len(episode.turns) - 1
    steps = replayed.steps if replayed.faithful else ()
    if episode.stop == StopReason.ENVIRONMENT_ERROR:
        return None if episode.success else Failure(Label.ENVIRONMENT_ERROR, last)
    own = _own_failure(env, PlayedEpisode(steps, len(episode.turns), episode.success, episode.returned))
    if own is not None or episode.success:
        return own
    return _other(episode, steps, last)


def _own_failure(env: TextEnvironment, played: PlayedEpisode) -> Failure | None:
    try:
        own = env.own_failure(played)
    except OWN_FAILURES:  # the labels of any environment are left
        return None
    return check_failure(env, own, turns=played.turns)


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

"""Reward terms that see the thought: whether it is true of the state, and whether the answer does what it says."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile
from typing import Final

from starpo.rewards.claims import claims
from starpo.rewards.terms import Group, check_size
from starpo.rewards.trajectory import Trajectory, Turn

#: Between two actions of one plan.
_GOES_ON: Final = re.compile(
    r"[\s,;.>|&+\-→]*(?:\b(?:and|then|next|finally|go|move|step)\b[\s,]*)*", re.IGNORECASE
)
#: Before an action that is compared with the one that is meant, or refused.
_NOT_MEANT: Final = re.compile(r"\b(?:than|over|not|avoid|instead of)\s{1,2}(?:the\s)?$", re.IGNORECASE)


def grounding(
    trajectory: Trajectory, group: Group, *, bonus: float = 0.1, penalty: float = 0.1
) -> list[float]:
    """``bonus`` times the share of a thought's claims about the state that are true, minus ``penalty`` times the rest.

    Claims are what :func:`starpo.rewards.claims.claims` reads: positions, neighbours, directions, names. 0 where the
    thought makes none, or the environment does not know its state (``facts``).

    Example: a thought with one true and one false claim gets ``0.5 * bonus - 0.5 * penalty``.
    """
    check_size(bonus=bonus, penalty=penalty)
    return [_weighed(_true_share(turn), bonus, penalty) for turn in trajectory.turns]


def plan_agreement(
    trajectory: Trajectory,
    group: Group,
    *,
    bonus: float = 0.1,
    penalty: float = 0.1,
    actions: list[str] | None = None,
) -> list[float]:
    """``bonus`` times the share of an answer's actions that the thought's plan has at the same place, minus ``penalty``
    times the rest.

    The plan is the last row of names of actions in the thought, leaving out what it says about the state and what
    follows on ``than``, ``over``, ``not``, ``avoid`` or ``instead of``. A plan that goes on beyond the answer agrees;
    an answer that goes on beyond the plan does not. 0 without a plan or an action.

    Args:
        trajectory: what is judged.
        group: not looked at.
        bonus: of an answer that does what the thought says.
        penalty: of one that does something else throughout.
        actions: names of the actions; null: those of the environment's ``facts``.

    Example: ``Left is a hole, so Down, then Right`` and the answer ``Down || Left``: half of each.
    """
    check_size(bonus=bonus, penalty=penalty)
    return [_weighed(_agreement(turn, actions), bonus, penalty) for turn in trajectory.turns]


def _weighed(share: float | None, bonus: float, penalty: float) -> float:
    return 0.0 if share is None else bonus * share - penalty * (1 - share)


def _true_share(turn: Turn) -> float | None:
    state = turn.state
    said = claims(turn.thought, state) if state is not None and turn.thought else []
    return sum(claim.true for claim in said) / len(said) if said else None


def _agreement(turn: Turn, actions: list[str] | None) -> float | None:
    plan = plan_of(turn, actions)
    if not plan or not turn.actions:
        return None
    done = [action.casefold() for action in turn.actions]
    return sum(one == other for one, other in zip(plan, done, strict=False)) / len(done)


def plan_of(turn: Turn, actions: list[str] | None = None) -> list[str]:
    """The actions that a thought ends with, in lower case; empty where it names none or nobody knows their names."""
    state = turn.state
    names = actions if actions is not None else state.actions if state is not None else ()
    if not names:
        return []
    either = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    said = claims(turn.thought, state) if state is not None else []
    stated = {place for claim in said if not claim.names for place in range(claim.start, claim.end)}
    named = [
        match
        for match in re.finditer(rf"\b(?:{either})\b", turn.thought, re.IGNORECASE)
        if match.start() not in stated
        and not _NOT_MEANT.search(turn.thought, max(match.start() - 20, 0), match.start())
    ]
    if not named:
        return []
    joined = takewhile(
        lambda pair: _GOES_ON.fullmatch(turn.thought, pair[1].end(), pair[0].start()), pairwise(named[::-1])
    )
    plan = [named[-1], *(earlier for _, earlier in joined)]
    return [match[0].casefold() for match in plan[::-1]]

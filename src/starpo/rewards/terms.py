"""Reward terms that look at a turn's numbers: what the environment paid, form, length, time.

A term is ``term(trajectory, group, **parameters) -> a number per turn``; ``group`` are the other members of the
trajectory's group. Terms stay apart until :mod:`starpo.rewards.total` adds them. Penalties are positive sizes and are
subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from starpo.algorithms.overlong import overlong_penalty
from starpo.rewards.trajectory import Trajectory

Group = Sequence[Trajectory]

FORMAT_PENALTY: Final = 0.1
"""RAGEN's, where the configuration names the term without a size."""


def check_size(**sizes: float) -> None:
    """Raise ValueError for a penalty or bonus below 0."""
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{name} is a size and must not be negative, got {size}")


def penalty_by_share(shares: Iterable[float], penalty: float) -> list[float]:
    """Minus ``penalty`` times each share, and no minus zero."""
    check_size(penalty=penalty)
    return [-penalty * share if share else 0.0 for share in shares]


def environment(trajectory: Trajectory, group: Group, *, scale: float = 1.0) -> list[float]:
    """The environment's own reward, times ``scale``: the outcome."""
    return [scale * turn.reward for turn in trajectory.turns]


def format_penalty(trajectory: Trajectory, group: Group, *, penalty: float = FORMAT_PENALTY) -> list[float]:
    """Minus ``penalty`` for each turn without a valid answer (RAGEN: 0.1).

    Example: format_valid ``[True, False]`` gives ``[0, -0.1]``.
    """
    return penalty_by_share((not turn.format_valid for turn in trajectory.turns), penalty)


def truncation_penalty(trajectory: Trajectory, group: Group, *, penalty: float = 0.1) -> list[float]:
    """Minus ``penalty`` for each turn that was cut off at the token limit (stop reason ``length``)."""
    return penalty_by_share((turn.stop_reason == "length" for turn in trajectory.turns), penalty)


def turn_penalty(trajectory: Trajectory, group: Group, *, penalty: float = 0.01) -> list[float]:
    """Minus ``penalty`` for every turn: a price on time."""
    return penalty_by_share((1.0 for _ in trajectory.turns), penalty)


def action_validity(trajectory: Trajectory, group: Group, *, penalty: float = 0.1) -> list[float]:
    """Minus ``penalty`` times the share of a turn's executed actions that changed nothing; all of it where the answer
    has no legal action.

    Example: of ``Left || Down`` only the second moved the player: ``-0.05``.
    """
    shares = []
    for turn in trajectory.turns:
        idle = len(turn.executed) - turn.effective
        shares.append(idle / len(turn.executed) if turn.executed else float(not turn.actions))
    return penalty_by_share(shares, penalty)


def length(
    trajectory: Trajectory,
    group: Group,
    *,
    at_least: int = 0,
    at_most: int | None = None,
    penalty: float = 0.001,
) -> list[float]:
    """Minus ``penalty`` for each sampled token that a turn is short of ``at_least`` or beyond ``at_most``.

    Raises:
        ValueError: ``at_least`` above ``at_most``, or a negative number.
    """
    check_size(at_least=at_least)
    if at_most is not None and at_most < at_least:
        raise ValueError(f"at_most ({at_most}) must not be below at_least ({at_least})")
    counts = (len(turn.response_ids) for turn in trajectory.turns)
    off = (max(at_least - n, 0) + (0 if at_most is None else max(n - at_most, 0)) for n in counts)
    return penalty_by_share(off, penalty)


def overlong(
    trajectory: Trajectory, group: Group, *, max_tokens: float, buffer: float, penalty: float = 1.0
) -> list[float]:
    """DAPO's overlong shaping: up to minus ``penalty`` for a turn that uses up the last ``buffer`` of ``max_tokens``.

    Linear in between; see :func:`starpo.algorithms.overlong.overlong_penalty`. ``max_tokens`` is that of a turn.
    """
    check_size(penalty=penalty)
    counts = [len(turn.response_ids) for turn in trajectory.turns]
    used: list[float] = overlong_penalty(counts, max_tokens=int(max_tokens), buffer=int(buffer)).tolist()
    return [penalty * share for share in used]


def success_bonus(trajectory: Trajectory, group: Group, *, bonus: float = 1.0) -> list[float]:
    """``bonus`` on the last turn of a trajectory that solved its task."""
    reward = [0.0] * len(trajectory)
    if trajectory.success and reward:
        reward[-1] = bonus
    return reward

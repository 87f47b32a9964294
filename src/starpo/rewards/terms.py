"""Reward terms: each judges every turn of one trajectory, ``term(turns, **parameters) -> float [K]``.

Terms stay apart until :mod:`starpo.rewards.total` adds them, so that a stored trajectory can be read, and
scored again with other weights. Penalties are given as positive sizes and are subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from starpo.algorithms.overlong import overlong_penalty

Reward = NDArray[np.float64]


@dataclass(frozen=True)
class Turns:
    """The turns of one trajectory, in order; K of them."""

    env_reward: NDArray[np.float64]
    """[K], sum of the environment's rewards over the turn's actions."""
    format_valid: NDArray[np.bool_]
    """[K], whether the response had the required form and only known actions."""
    response_tokens: NDArray[np.int64]
    """[K], sampled tokens of the turn."""
    stop_reason: tuple[str, ...]
    """[K], why the turn ended (``stop``, ``length``, ...)."""
    success: bool
    """Whether the trajectory solved its task."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields describe the same number of turns."""
        lengths = {
            name: len(getattr(self, name))
            for name in ("env_reward", "format_valid", "response_tokens", "stop_reason")
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"all fields must have one entry per turn, got {lengths}")

    def __len__(self) -> int:
        return len(self.env_reward)


FORMAT_PENALTY: Final = 0.1
"""RAGEN's, where the configuration names the term without a size."""


def _penalty_where(condition: NDArray[np.bool_], penalty: float) -> Reward:
    if penalty < 0:
        raise ValueError(f"penalty is a size to subtract and must not be negative, got {penalty}")
    return np.where(condition, -penalty, 0.0)


def environment(turns: Turns, *, scale: float = 1.0) -> Reward:
    """The environment's own reward, times ``scale``."""
    return scale * np.asarray(turns.env_reward, dtype=np.float64)


def format_penalty(turns: Turns, *, penalty: float = FORMAT_PENALTY) -> Reward:
    """Minus ``penalty`` for each turn without a valid answer (RAGEN: 0.1).

    Example: format_valid ``[True, False]`` gives ``[0, -0.1]``.
    """
    return _penalty_where(~np.asarray(turns.format_valid, dtype=bool), penalty)


def truncation_penalty(turns: Turns, *, penalty: float = 0.1) -> Reward:
    """Minus ``penalty`` for each turn that was cut off at the token limit (stop reason ``length``)."""
    return _penalty_where(np.array([reason == "length" for reason in turns.stop_reason], dtype=bool), penalty)


def turn_penalty(turns: Turns, *, penalty: float = 0.01) -> Reward:
    """Minus ``penalty`` for every turn: a price on time."""
    return _penalty_where(np.ones(len(turns), dtype=bool), penalty)


def overlong(turns: Turns, *, max_tokens: float, buffer: float, penalty: float = 1.0) -> Reward:
    """DAPO's overlong shaping: up to minus ``penalty`` for a turn that uses up the last ``buffer`` of ``max_tokens``.

    Linear in between; see :func:`starpo.algorithms.overlong.overlong_penalty`. ``max_tokens`` is that of a turn.
    """
    if penalty < 0:
        raise ValueError(f"penalty is a size to subtract and must not be negative, got {penalty}")
    return penalty * overlong_penalty(turns.response_tokens, max_tokens=int(max_tokens), buffer=int(buffer))


def success_bonus(turns: Turns, *, bonus: float = 1.0) -> Reward:
    """``bonus`` on the last turn of a trajectory that solved its task."""
    reward = np.zeros(len(turns))
    if turns.success and len(turns):
        reward[-1] = bonus
    return reward


Term = Callable[..., Reward]

TERMS: Mapping[str, Term] = {
    "environment": environment,
    "format_penalty": format_penalty,
    "truncation_penalty": truncation_penalty,
    "turn_penalty": turn_penalty,
    "overlong": overlong,
    "success_bonus": success_bonus,
}
"""Registered terms by name."""

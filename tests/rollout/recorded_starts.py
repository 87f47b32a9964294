"""Environments that start from a recorded state, addressed as ``recorded_starts:Class``."""

from __future__ import annotations

from typing import Any

import numpy as np

from starpo.environments.bandit import Bandit
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.sokoban import Sokoban


def recorded_luck(seed: int, draws: int) -> np.random.Generator:
    """The peer's stream of luck: seeded like the instance, ``draws`` of it spent before the first step."""
    luck = np.random.Generator(np.random.PCG64(seed))
    luck.random(draws)
    return luck


class Room(Sokoban):
    """Starts in the given room."""

    def __init__(self, board: str, num_boxes: int) -> None:
        rows = board.split("\n")
        super().__init__(size=(len(rows), len(rows[0])), num_boxes=num_boxes)
        self._start = board

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options={"board": self._start})


class Lake(FrozenLake):
    """Starts on the given lake with the peer's slips of ``luck``."""

    def __init__(self, board: str, luck: int) -> None:
        super().__init__()
        self._start, self._luck = board, luck

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = super().reset(seed=seed, options={"board": self._start})
        self.dynamics = recorded_luck(self._luck, 1)
        return result


class TwoArms(Bandit):
    """The peer's two arms with its payments of ``luck``."""

    def __init__(self, luck: int) -> None:
        super().__init__()
        self._luck = luck

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        result = super()._begin(instance)
        self._pair = self.action_names = ("Phoenix", "Dragon")
        self.dynamics = recorded_luck(self._luck, 1)
        return result

"""Environments that misbehave on purpose, addressed as ``odd_environments:Class``."""

from __future__ import annotations

from typing import Any

import numpy as np

from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.splits import Split


class Counter(TextEnvironment):
    """Never ends; ``Add`` pays 1, ``Wait`` nothing; the first number is the instance, a coin is the luck."""

    rules = "Count."
    action_names = ("Add", "Wait")
    return_range = (0.0, 100.0)

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self.count = int(instance.integers(10**6))
        return f"count {self.count}", {"success": False}

    def _act(self, action: str) -> StepResult:
        self.count += action == "Add"
        coin = int(self.dynamics.integers(10**6))
        info = {"success": False, "effective": action == "Add"}
        return f"count {self.count} coin {coin}", float(action == "Add"), False, False, info

    def declared_split(self) -> Split:
        return Split.TRAIN


class Crashing(Counter):
    """Raises at the action ``Wait``."""

    def _act(self, action: str) -> StepResult:
        if action == "Wait":
            raise KeyError("a bug in the environment")
        return super()._act(action)


class Lying(Counter):
    """Returns a reward of the wrong type, which is a breach of contract and no bad luck."""

    def _act(self, action: str) -> StepResult:
        observation, _, terminated, truncated, info = super()._act(action)
        return observation, "much", terminated, truncated, info  # type: ignore[return-value]


class Finishing(Counter):
    """``Add`` solves the task; ``Wait`` is cut off by the environment's own clock."""

    def _act(self, action: str) -> StepResult:
        observation, reward, *_ = super()._act(action)
        won = action == "Add"
        return observation, reward, won, not won, {"success": won, "effective": True}

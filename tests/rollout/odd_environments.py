"""Environments that misbehave on purpose, addressed as ``odd_environments:Class``."""

from __future__ import annotations

import os
import sys
import time
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


class Broken(Counter):
    """Fails in ways that an argument names, in a share of its episodes that the luck decides.

    ``where``: ``reset``, ``match`` (of an action) or ``step``. ``how``: ``raise``, ``quit`` (``sys.exit``), ``exit``
    (the process ends without a word) or ``hang``.
    """

    def __init__(self, *, where: str, how: str, one_in: int = 2) -> None:
        super().__init__()
        self._where, self._how, self._one_in = where, how, one_in

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        result = super().reset(seed=seed, options=options)
        # The one that instances are drawn from instances has no luck of its own and never fails.
        doomed = options is not None and self.dynamics.integers(self._one_in) == 0
        self._doomed = bool(doomed)
        if self._doomed and self._where == "reset":
            self._fail()
        return result

    def match_action(self, text: str) -> str | None:
        name = super().match_action(text)
        if self._doomed and self._where == "match" and name == "Wait":
            self._fail()
        return name

    def _act(self, action: str) -> StepResult:
        if self._doomed and self._where == "step" and action == "Wait":
            self._fail()
        return super()._act(action)

    def _fail(self) -> None:
        if self._how == "exit":
            os._exit(3)
        if self._how == "hang":
            time.sleep(3600)
        if self._how == "quit":
            sys.exit("enough")
        raise KeyError("a bug in the environment")


class Bad(Counter):
    """``reset`` fails always, also for the one that instances are drawn from."""

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        raise OSError("no such map")


class Inventive(Counter):
    """Matches an action that it does not know."""

    def match_action(self, text: str) -> str | None:
        return "Fly"


class Moody(Counter):
    """Breaks the rule that seeds and actions decide everything."""

    def _act(self, action: str) -> StepResult:
        observation, *rest = super()._act(action)
        return (f"{observation} {os.getpid()}", *rest)  # type: ignore[return-value]


class MoodyExit(Moody):
    """The same, and ``Add`` in an episode with an even coin ends the process."""

    def _act(self, action: str) -> StepResult:
        result = super()._act(action)
        if action == "Add" and self.count % 2 == 0:
            os._exit(4)
        return result


class Long(Counter):
    """Its observation is a megabyte, at ``reset`` in episodes with even luck, or at the action ``Wait``."""

    def __init__(self, *, at: str) -> None:
        super().__init__()
        self._at = at

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        doomed = self._at == "reset" and options is not None and self.dynamics.integers(2) == 0
        return observation + "x" * (doomed << 20), info

    def _act(self, action: str) -> StepResult:
        observation, *rest = super()._act(action)
        doomed = self._at == "step" and action == "Wait"
        return (observation + "x" * (doomed << 20), *rest)  # type: ignore[return-value]


class Unwritten(Counter):
    """Its observations are bytes, or text with half of a surrogate pair."""

    def __init__(self, *, how: str, at: str) -> None:
        super().__init__()
        self._how, self._at = how, at

    def _spoilt(self, observation: str, at: str) -> Any:
        if at != self._at:
            return observation
        return observation.encode() if self._how == "bytes" else observation + "\ud800"

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        observation, info = super()._begin(instance)
        return self._spoilt(observation, "reset"), info

    def _act(self, action: str) -> StepResult:
        observation, *rest = super()._act(action)
        return (self._spoilt(observation, "step"), *rest)  # type: ignore[return-value]

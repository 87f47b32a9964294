"""Environments that go wrong where and how an argument says, addressed as ``isolated_environments:Class``.

In a module of their own, because the processes that they live in import it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.splits import Split


class Walk(TextEnvironment):
    """A walk by coin. Does what ``how`` says at the place ``at``, in one of ``one_in`` cases."""

    rules, action_names, return_range = "Walk.", ("Left", "Right"), (-10.0, 10.0)

    def __init__(self, *, at: str = "", how: str = "raise", one_in: int = 3, name: str = "") -> None:
        super().__init__()
        self.at, self.how, self.one_in, self.name = at, how, one_in, name
        self.do("constructor", 0)

    def do(self, at: str, number: int) -> None:
        if at != self.at or number % self.one_in:
            return
        if self.how == "exit":
            os._exit(7)
        if self.how == "hang":
            time.sleep(3600)
        if self.how == "quit":
            sys.exit("enough")
        raise KeyError("broken")

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self.start = int(instance.integers(10**6))
        self.at_rest = 0
        self.do("reset", self.start)
        return f"start {self.start}", {"success": False, "more": threading.Lock()}

    def _act(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.do("step", self.start)
        self.at_rest += 1 if action == "Right" else -1
        lucky = bool(self.dynamics.random() < 0.2)
        over = self.at_rest == 2
        return f"at {self.at_rest}", float(lucky), over, False, {"success": over, "effective": True}


class Planned(Walk):
    """Has a split, a solver, a taste and a price of its own."""

    action_cost = 0.25

    def _act(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, _, over, *rest = super()._act(action)
        self.dynamics = np.random.Generator(np.random.PCG64(0))  # as if nothing had been drawn
        return observation, 1.0, over, *rest

    def declared_split(self) -> Split:
        self.do("split", self.start)
        return list(Split)[self.start % 3]

    def optimal_actions(self) -> list[str]:
        self.do("solver", self.start)
        return ["Right"] * (2 - self.at_rest)

    def random_action(self, draw: np.random.Generator) -> str:
        self.do("random action", int(draw.integers(10**6)))
        return super().random_action(draw)

    def __deepcopy__(self, memo: dict[int, Any]) -> Planned:
        self.do("copy", self.start)
        twin = Planned(at=self.at, how=self.how, one_in=self.one_in)
        twin.reset(seed=0)
        twin.start, twin.at_rest = self.start, self.at_rest
        return twin


class Odd(Walk):
    """Its first observation is no text and cannot be sent."""

    def _begin(self, instance: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        return threading.Lock(), {"success": False}


class OwnBandit(Bandit):
    """Derived from what solvers know."""


class SlowToClose(Planned):
    """Takes longer to close than a step may take."""

    def close(self) -> None:
        time.sleep(1.0)


class OwnPlan(Walk):
    """Its solver belongs to the object, not to the class."""

    def __init__(self) -> None:
        super().__init__()
        self.optimal_actions = lambda: ["Right"] * (2 - self.at_rest)
        self.declared_split = lambda: list(Split)[self.start % 3]

    def _act(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.dynamics = np.random.Generator(np.random.PCG64(0))
        observation, _, *rest = super()._act(action)
        self.dynamics = np.random.Generator(np.random.PCG64(0))
        return observation, 1.0, *rest

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnPlan:
        twin = OwnPlan()
        twin.reset(seed=0)
        twin.start, twin.at_rest = self.start, self.at_rest
        return twin


class Baseless(Walk):
    """Does not call the constructor of its base."""

    def __init__(self) -> None:
        self.at, self.how, self.one_in, self.name = "", "", 3, ""


class UserError(Exception):
    """A name that means something elsewhere."""


class Speechless(Exception):
    """Has no message."""

    def __str__(self) -> str:
        raise RuntimeError("no comment")


class Throwing(Walk):
    """Raises what ``what`` names in a third of its resets."""

    def __init__(self, *, what: str) -> None:
        super().__init__()
        self.what = what

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        observation, info = super()._begin(instance)
        if self.start % 3 == 0:
            raise {"UserError": UserError, "Speechless": Speechless, "Cancelled": asyncio.CancelledError}[
                self.what
            ]("broken")
        return observation, info


class Unsendable(str):
    """A text that cannot be pickled, and says so with an exception of its own."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not for sending")


class Telling(Walk):
    """Its observations cannot be sent."""

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        observation, info = super()._begin(instance)
        return Unsendable(observation), info


class Shouting(Walk):
    """Its random actions are no names of actions."""

    def random_action(self, draw: np.random.Generator) -> str:
        return super().random_action(draw).upper()


class Vague(Walk):
    """Its third step does not say whether it was a success."""

    def _act(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        *result, info = super()._act(action)
        return *result, {} if abs(self.at_rest) == 2 else info


class Served(Planned):
    """Needs a process of its own, which it ends when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def close(self) -> None:
        self.server.communicate(b"\n")

    def __deepcopy__(self, memo: dict[int, Any]) -> Served:
        twin = Served()
        twin.reset(seed=0)
        twin.start, twin.at_rest = self.start, self.at_rest
        return twin

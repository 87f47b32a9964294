"""Environments of one kind on numbered slots: what a worker process holds for :mod:`starpo.rollout.isolated`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import close
from starpo.environments.registry import Recipe
from starpo.rollout.calls import OPTIONAL, Call, Done, Facts, Present

#: What evaluation reads of ``info``; the rest may be anything and stays here.
INFO: Final = ("success", "effective")


class Slots:
    """Builds environments from one recipe and calls their methods; ``note`` is told of each call before it begins."""

    def __init__(self, recipe: Recipe, note: Callable[[str], None]) -> None:
        self._recipe, self._note = recipe, note
        self._taken: dict[int, TextEnvironment] = {}

    def about(self, call: Call) -> str:
        """What a message calls it."""
        return f"environment {self._recipe.name!r}: {call.what}"

    def do(self, call: Call) -> Done:
        """The answer; raises what the environment raises."""
        self._note(call.what)
        if call.what == "build":
            env = self._taken[call.slot] = self._recipe.build()
            return Done(_facts(env), Present.of(env))
        if call.what == "close":
            if call.slot in self._taken:
                close(self._taken.pop(call.slot))
            return Done(None, None)
        env = self._taken[call.slot]
        if call.what == "copy":
            twin = self._taken[call.arguments[0]] = copy.deepcopy(env)
            return Done(None, Present.of(twin))
        if call.what == "reset":
            seed, options = call.arguments
            result = env.reset(seed=seed, options=options)
        else:
            result = getattr(env, call.what)(*call.arguments)
        draw = next((each for each in call.arguments if isinstance(each, np.random.Generator)), None)
        return Done(_plain(result), Present.of(env), draw)

    def close(self) -> None:
        """Close all environments."""
        for env in self._taken.values():
            close(env)


def _facts(env: TextEnvironment) -> Facts:
    own = tuple(name for name in OPTIONAL if env.knows(name))
    labels = dict(env.failure_labels)
    return Facts(type(env).__name__, env.trusted, own, tuple(env.phrases), env.action_cost, labels)


def _plain(result: Any) -> Any:
    if isinstance(result, tuple) and result and isinstance(result[-1], dict):
        info = {key: result[-1][key] for key in INFO if key in result[-1]}
        return (*result[:-1], info)
    return result

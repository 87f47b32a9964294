"""The process behind :mod:`starpo.environments.isolated`.

    python -m starpo.environments.isolated_worker DESCRIPTOR PARENT

Messages to it: first a ``Recipe``, then calls. Messages from it: ``ready`` once, then an answer per call.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES
from starpo.environments.isolated_calls import OPTIONAL, Call, Done, Facts, Present, Raised
from starpo.environments.processes import run
from starpo.environments.registry import Recipe

#: What evaluation reads of ``info``; the rest may be anything and stays here.
INFO: Final = ("success", "effective")


def serve(connection: Connection) -> None:
    """Answer calls until the pipe closes."""
    recipe: Recipe = connection.recv()
    connection.send("ready")
    seats: dict[int, TextEnvironment] = {}
    while True:
        call: Call = connection.recv()
        for seat in call.dropped:
            if seat in seats:
                with contextlib.suppress(*OWN_FAILURES):  # nobody uses it any more
                    seats.pop(seat).close()
        try:
            answer: Done | Raised = _answer(recipe, seats, call)
        except OWN_FAILURES as error:
            answer = Raised(type(error).__name__, str(error))
        try:
            connection.send(answer)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            text = f"environment {recipe.name!r}: {call.what}'s result cannot be sent to another process ({error})"
            connection.send(Raised("ContractError", text))


def _answer(recipe: Recipe, seats: dict[int, TextEnvironment], call: Call) -> Done:
    if call.what == "build":
        env = seats[call.seat] = recipe.build()
        return Done(_facts(env), Present.of(env))
    env = seats[call.seat]
    if call.what == "copy":
        twin = seats[call.arguments[0]] = copy.deepcopy(env)
        return Done(None, Present.of(twin))
    if call.what == "reset":
        seed, options = call.arguments
        result = env.reset(seed=seed, options=options)
    else:
        result = getattr(env, call.what)(*call.arguments)
    draw = next((each for each in call.arguments if isinstance(each, np.random.Generator)), None)
    return Done(_plain(result), Present.of(env), draw)


def _facts(env: TextEnvironment) -> Facts:
    kind = type(env)
    own = [
        name
        for name in OPTIONAL
        if hasattr(env, name) and getattr(kind, name, None) is not getattr(TextEnvironment, name, None)
    ]
    lineage = tuple(f"{each.__module__}:{each.__qualname__}" for each in kind.__mro__)
    return Facts(kind.__name__, lineage, tuple(own), tuple(env.phrases))


def _plain(result: Any) -> Any:
    if isinstance(result, tuple) and result and isinstance(result[-1], dict):
        info = {key: result[-1][key] for key in INFO if key in result[-1]}
        return (*result[:-1], info)
    return result


if __name__ == "__main__":
    run(serve)

"""The process behind :mod:`starpo.rollout.isolated`.

    python -m starpo.rollout.isolated_worker DESCRIPTOR PARENT

Messages to it: first a ``Recipe``, then calls. Messages from it: ``ready`` once, then an answer per call.
"""

from __future__ import annotations

import copy
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import close
from starpo.environments.registry import Recipe
from starpo.rollout.isolated_calls import KEPT, OPTIONAL, Call, Done, Facts, Present, Raised
from starpo.rollout.processes import run

#: What evaluation reads of ``info``; the rest may be anything and stays here.
INFO: Final = ("success", "effective")


def serve(connection: Connection) -> None:
    """Answer calls until the pipe closes."""
    recipe: Recipe = connection.recv()
    connection.send("ready")
    seats: dict[int, TextEnvironment] = {}
    try:
        while True:
            call: Call = connection.recv()
            try:
                answer: Done | Raised = _answer(recipe, seats, call)
            except BaseException as error:  # whatever a user's code raises is an answer
                answer = _raised(error)
            _send(connection, answer, f"environment {recipe.name!r}: {call.what}'s result")
    finally:
        for env in seats.values():
            close(env)


def _send(connection: Connection, answer: Done | Raised, what: str) -> None:
    try:
        connection.send(answer)
    except OSError:
        raise
    except Exception as error:  # pickling runs code of others
        text = f"{what} cannot be sent to another process ({type(error).__name__}: {error})"
        connection.send(Raised("ContractError", text, kept=True))


def _raised(error: BaseException) -> Raised:
    try:
        text = str(error)
    except Exception:
        text = "its message cannot be had"
    kept = next((each.__name__ for each in KEPT if isinstance(error, each)), "")
    return Raised(kept or type(error).__name__, text, kept=bool(kept))


def _answer(recipe: Recipe, seats: dict[int, TextEnvironment], call: Call) -> Done:
    if call.what == "build":
        env = seats[call.seat] = recipe.build()
        return Done(_facts(env), Present.of(env))
    if call.what == "close":
        if call.seat in seats:
            close(seats.pop(call.seat))
        return Done(None, None)
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
    own = tuple(name for name in OPTIONAL if env.knows(name))
    labels = dict(env.failure_labels)
    return Facts(type(env).__name__, env.trusted, own, tuple(env.phrases), env.action_cost, labels)


def _plain(result: Any) -> Any:
    if isinstance(result, tuple) and result and isinstance(result[-1], dict):
        info = {key: result[-1][key] for key in INFO if key in result[-1]}
        return (*result[:-1], info)
    return result


if __name__ == "__main__":
    run(serve)

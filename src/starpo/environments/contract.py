"""What every environment owes its users, checked with messages that name the environment and the field."""

from __future__ import annotations

import contextlib
import json
import math
import reprlib
from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from starpo.environments.base import TextEnvironment
from starpo.environments.records import Expectation, Failure
from starpo.errors import UserError

#: An environment's own failures, which end an episode and not the run; ``sys.exit`` raises what is no ``Exception``.
OWN_FAILURES: Final = (Exception, SystemExit)
#: Sums of float32 rewards differ from the exact return by less than this.
RETURN_TOLERANCE: Final = 1e-6
#: Steps of the trial episode; enough to end most episodes and to meet every kind of step otherwise.
TRIAL_STEPS: Final = 50

#: A value in a message is cut in its middle.
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


class ContractError(TypeError):
    """An environment returned something of the wrong type or value."""


def not_built(name: str, error: BaseException) -> UserError:
    """What to say where the environment's constructor failed."""
    return UserError(
        f"environment {name!r} cannot be built: {type(error).__name__}: {error}. Mend its arguments or what it needs"
    )


def check_reset(name: str, result: Any) -> tuple[str, dict[str, Any]]:
    """``result`` of ``reset`` if it is (str, dict with a bool ``success``), else raises ``ContractError``."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise _error(name, "reset result", result, "a tuple (observation, info)")
    observation, info = result
    _check_text(name, "reset observation", observation)
    _check_type(name, "reset info", info, dict)
    _check_type(name, "reset info['success']", info.get("success"), bool)
    return observation, info


def check_step(name: str, result: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """``result`` of ``step`` if its five fields have the right types, else raises ``ContractError``."""
    if not isinstance(result, tuple) or len(result) != 5:
        raise _error(
            name, "step result", result, "a tuple (observation, reward, terminated, truncated, info)"
        )
    observation, reward, terminated, truncated, info = result
    _check_text(name, "step observation", observation)
    _check_type(name, "step reward", reward, float)
    if not math.isfinite(reward):
        raise _error(name, "step reward", reward, "a finite float")
    _check_type(name, "step terminated", terminated, bool)
    _check_type(name, "step truncated", truncated, bool)
    _check_type(name, "step info", info, dict)
    _check_type(name, "step info['success']", info.get("success"), bool)
    _check_type(name, "step info['effective']", info.get("effective"), bool)
    return observation, reward, terminated, truncated, info


def check_action(name: str, env: TextEnvironment, action: Any, *, of: str = "match_action") -> str:
    """``action``, which the method ``of`` gave, if it is in ``action_names`` (or free text), else ``ContractError``."""
    _check_type(name, f"{of}'s result", action, str)
    if env.action_names and action not in env.action_names:
        nothing = "None or " if of == "match_action" else ""
        raise _error(name, f"{of}'s result", action, f"{nothing}one of action_names {env.action_names}")
    return str(action)


def close(env: TextEnvironment) -> None:
    """Close an environment that nobody uses any more; whatever it has to say changes nothing."""
    with contextlib.suppress(*OWN_FAILURES):
        env.close()


def check_plan(name: str, plan: Any) -> list[str]:
    """``plan`` of an environment's own ``optimal_actions`` if it is a list of strings, else ``ContractError``."""
    if not isinstance(plan, list) or not all(isinstance(action, str) for action in plan):
        raise _error(name, "optimal_actions' result", plan, "a list of action names")
    return plan


def check_failure(env: TextEnvironment, failure: Any, *, turns: int) -> Failure | None:
    """What ``env.own_failure`` said of an episode of so many turns, if it names a label of its own, else raises."""
    if failure is None or (
        isinstance(failure, Failure) and failure.label in env.failure_labels and 0 <= failure.turn < turns
    ):
        return failure
    allowed = (
        f"None or a Failure with one of failure_labels {tuple(env.failure_labels)} in turn 0 to {turns - 1}"
    )
    raise _error(type(env).__name__, "own_failure's result", failure, allowed)


def check_state(env: TextEnvironment, state: Any) -> Hashable | None:
    """What ``env.state`` gave, if it can be compared with others, else raises ``ContractError``."""
    try:
        hash(state)
    except TypeError:
        raise _error(type(env).__name__, "state's result", state, "None or something hashable") from None
    return state


def check_chance(env: TextEnvironment, chance: Any) -> float | None:
    """What ``env.chance_of`` said of a plan, if it is a probability or None, else raises ``ContractError``."""
    if chance is None or (isinstance(chance, int | float) and 0 <= chance <= 1):
        return chance
    raise _error(type(env).__name__, "chance_of's result", chance, "None or a number from 0 to 1")


def check_expectation(env: TextEnvironment, expectation: Any, *, of: str) -> Expectation | None:
    """What the method ``of`` of ``env`` expects, if it is an ``Expectation`` or None, else raises ``ContractError``."""
    if expectation is None or isinstance(expectation, Expectation):
        return expectation
    raise _error(type(env).__name__, f"{of}'s result", expectation, "None or an Expectation")


def plain_info(name: str, info: dict[str, Any]) -> dict[str, Any]:
    """``info`` as the table stores it: JSON values, what is none as text. Raises ``ContractError``."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(info, sort_keys=True, default=_plain))
    except (TypeError, ValueError) as error:
        raise ContractError(f"environment {name!r}: step info cannot be written as JSON ({error})") from error
    return plain


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def check_declarations(name: str, env: TextEnvironment) -> None:
    """What ``env`` says about itself before any episode: rules, action names, range of returns and cost of an action.

    ``action_names`` may be empty, for free text or until ``reset`` gives them. Raises ``ContractError``.
    """
    _check_text(name, "rules", getattr(env, "rules", None))
    names = getattr(env, "action_names", None)
    if (
        not isinstance(names, tuple)
        or not all(isinstance(each, str) for each in names)
        or len({each.casefold() for each in names}) < len(names)
    ):
        raise _error(name, "action_names", names, "a tuple of strings that differ by more than case")
    bounds = getattr(env, "return_range", None)
    if (
        not isinstance(bounds, tuple)
        or len(bounds) != 2
        or not all(isinstance(bound, int | float) for bound in bounds)
        or not bounds[0] <= bounds[1]
    ):
        raise _error(name, "return_range", bounds, "a tuple (smallest, largest)")
    cost = getattr(env, "action_cost", None)
    if not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        raise _error(name, "action_cost", cost, "a finite number, 0 or more")


def check_environment(env: TextEnvironment, *, name: str | None = None, seed: int = 0) -> None:
    """Play one trial episode and raise ``ContractError`` at the first breach, naming environment and field.

    Beside types: the same seeds and actions give the same episode, another luck gives the same first
    observation, ``action_names`` are distinct strings that ``match_action`` finds, the return stays in
    ``return_range``, and a step after the end raises.
    """
    label = name or type(env).__name__
    if not isinstance(env, TextEnvironment):
        raise _error(label, "environment", env, "a subclass of starpo.environments.base.TextEnvironment")
    check_declarations(label, env)
    observation, _ = check_reset(label, env.reset(seed=seed))
    for what, options in (
        ("the seed", None),
        ("the seed, and luck comes later,", {"dynamics_seed": seed + 1}),
    ):
        again, _ = check_reset(label, env.reset(seed=seed, options=options))
        if again != observation:
            raise _error(
                label, "reset observation", again, f"{observation!r} again, since {what} is the same"
            )
    check_declarations(label, env)  # once more: ``reset`` may have given the names of the actions
    for each in env.action_names:
        if env.match_action(f" {each.upper()} ") != each:
            raise _error(label, "match_action", env.match_action(each), f"{each!r} for {each!r}")
    first, second = _trial(label, env, seed), _trial(label, env, seed)
    for number, (before, after) in enumerate(zip(first, second, strict=False)):
        if before != after:
            raise _error(
                label,
                f"step {number} of a trial",
                after,
                f"{before!r} again, since seeds and actions are the same",
            )
    total, ended = sum(step[1] for step in first), bool(first[-1][2] or first[-1][3])
    low, high = env.return_range
    if ended and not low - RETURN_TOLERANCE <= total <= high + RETURN_TOLERANCE:
        raise _error(label, "return", total, f"a value within return_range {env.return_range}")
    if ended:
        _check_refuses_to_go_on(label, env)


def _trial(label: str, env: TextEnvironment, seed: int) -> list[tuple[str, float, bool, bool]]:
    """Observation, reward and ends of every step of an episode in which the actions take turns."""
    env.reset(seed=seed)
    steps: list[tuple[str, float, bool, bool]] = []
    for turn in range(TRIAL_STEPS):
        action = env.action_names[turn % len(env.action_names)] if env.action_names else ""
        steps.append(check_step(label, env.step(action))[:4])
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


def _check_refuses_to_go_on(label: str, env: TextEnvironment) -> None:
    try:
        env.step(env.action_names[0] if env.action_names else "")
    except RuntimeError:
        return
    raise ContractError(f"environment {label!r}: a step after the episode's end must raise RuntimeError")


def _check_text(label: str, field: str, value: Any) -> None:
    _check_type(label, field, value, str)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _error(
            label, field, value, "text without halves of surrogate pairs, which no file can hold"
        ) from None


def _check_type(label: str, field: str, value: Any, expected: type) -> None:
    if not isinstance(value, expected):
        raise _error(label, field, value, expected.__name__)


def _error(label: str, field: str, value: Any, expected: str) -> ContractError:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return ContractError(
        f"environment {label!r}: {field} is {_SHORT.repr(value)} of type {module}{kind.__qualname__}, "
        f"expected {expected}"
    )

"""Environments by name: the built-in ones, those registered by others, and ``module:Class``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError, check_environment
from starpo.environments.sokoban_room import DIFFERENT_SYMBOLS

__all__ = ["ContractError", "check_environment", "make", "register", "registered_names"]

Factory = Callable[..., TextEnvironment]

_REGISTRY: dict[str, tuple[str | Factory, dict[str, Any]]] = {}


def register(name: str, target: str | Factory, **defaults: Any) -> None:
    """Make ``target`` (a class, a function or ``"module:Class"``) known as ``name`` with default arguments.

    A name can be registered once; a second target under the same name raises ``ValueError``.
    """
    if ":" in name:
        raise ValueError(f"environment name {name!r} must not hold a colon, which marks module:Class")
    if name in _REGISTRY and _REGISTRY[name] != (target, defaults):
        raise ValueError(f"environment {name!r} is already registered as {_REGISTRY[name][0]!r}")
    _REGISTRY[name] = (target, defaults)


def registered_names() -> tuple[str, ...]:
    """All known names, sorted."""
    return tuple(sorted(_REGISTRY))


def make(name: str, **kwargs: Any) -> TextEnvironment:
    """Build the environment ``name``; ``kwargs`` override its registered defaults.

    >>> make("frozen_lake", size=5).action_names
    ('Left', 'Down', 'Right', 'Up')

    Raises ``ValueError`` on an unknown name (listing the known ones), ``TypeError`` on an unknown argument
    or a target that does not build a ``TextEnvironment``.
    """
    if name in _REGISTRY:
        target, defaults = _REGISTRY[name]
    elif ":" in name:
        target, defaults = name, {}
    else:
        raise ValueError(
            f"unknown environment {name!r}; known: {', '.join(registered_names())}, or module:Class"
        )
    factory = _load(name, target) if isinstance(target, str) else target
    arguments = {**defaults, **kwargs}
    _check_arguments(name, factory, arguments)
    env = factory(**arguments)
    if not isinstance(env, TextEnvironment):
        raise TypeError(
            f"environment {name!r}: {target!r} built a {type(env).__name__}, "
            "expected a subclass of TextEnvironment"
        )
    return env


def _load(name: str, target: str) -> Factory:
    module_name, _, attribute = target.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"environment {name!r}: cannot import {target!r} ({error})") from error
    if not callable(factory):
        raise TypeError(f"environment {name!r}: {target!r} is not a class or function")
    return factory


def _check_arguments(name: str, factory: Factory, arguments: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    unknown = sorted(set(arguments) - set(parameters))
    if unknown:
        raise TypeError(
            f"environment {name!r}: unknown argument {unknown[0]!r}, "
            f"allowed: {', '.join(parameters) or 'none'}"
        )


register("bandit", "starpo.environments.bandit:Bandit")
register("bandit_reversed", "starpo.environments.bandit:Bandit", reversed_meaning=True)
register("frozen_lake", "starpo.environments.frozen_lake:FrozenLake")
register("frozen_lake_8x8", "starpo.environments.frozen_lake:FrozenLake", size=8)
register("frozen_lake_no_slip", "starpo.environments.frozen_lake:FrozenLake", slippery=False)
register("sokoban", "starpo.environments.sokoban:Sokoban")
register("sokoban_different_vocab", "starpo.environments.sokoban:Sokoban", symbols=dict(DIFFERENT_SYMBOLS))
# 2 to 10 moves have the mean, 6, of RAGEN's rooms of this size (5.8).
register("sokoban_large", "starpo.environments.sokoban:Sokoban", size=(8, 8), num_boxes=2, max_optimal=10)

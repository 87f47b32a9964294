"""Environments by name: the built-in ones, those of installed distributions, and ``module:Class``.

A distribution offers environments as entry points of the group ``starpo.environments``; they are looked up when a
name is first asked for, and imported when it is used.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError, check_declarations, check_environment
from starpo.environments.sokoban_room import DIFFERENT_SYMBOLS

__all__ = ["ContractError", "check_environment", "make", "register", "registered_names"]

Factory = Callable[..., TextEnvironment]

#: Entry points of this group are environments.
GROUP: Final = "starpo.environments"

_REGISTRY: dict[str, tuple[str | Factory, dict[str, Any]]] = {}


@dataclass(frozen=True)
class Recipe:
    """All it takes to build an environment, also in another process."""

    name: str
    """As asked for; messages use it."""
    target: str | Factory
    """A class or function, or ``module:Class``."""
    arguments: dict[str, Any]
    """Keyword arguments, the registered defaults included."""

    def factory(self) -> Factory:
        """What builds it, imported. Raises ``ValueError`` if it cannot be, ``TypeError`` if it cannot be called."""
        return _load(self.name, self.target) if isinstance(self.target, str) else self.target

    def build(self) -> TextEnvironment:
        """A new environment.

        Raises ``ValueError`` if the target cannot be imported, ``TypeError`` on an unknown argument, a target that
        does not build a ``TextEnvironment``, or one that lacks what every environment must say about itself.
        """
        factory = self.factory()
        _check_arguments(self.name, factory, self.arguments)
        env = factory(**self.arguments)
        if not isinstance(env, TextEnvironment):
            raise TypeError(
                f"environment {self.name!r}: {self.target!r} built a {type(env).__name__}, "
                "expected a subclass of starpo.environments.base.TextEnvironment"
            )
        check_declarations(self.name, env)
        return env


def register(name: str, target: str | Factory, /, **defaults: Any) -> None:
    """Make ``target`` (a class, a function or ``"module:Class"``) known as ``name`` with default arguments.

    A name can be registered once; a second target under the same name raises ``ValueError``.
    """
    if ":" in name:
        raise ValueError(f"environment name {name!r} must not hold a colon, which marks module:Class")
    if name in _REGISTRY and _REGISTRY[name] != (target, defaults):
        raise ValueError(f"environment {name!r} is already registered as {_REGISTRY[name][0]!r}")
    _REGISTRY[name] = (target, defaults)


def registered_names() -> tuple[str, ...]:
    """All known names, those of installed distributions included, sorted."""
    return tuple(sorted({*_REGISTRY, *_installed()}))


def make(name: str, /, **kwargs: Any) -> TextEnvironment:
    """Build the environment ``name``; ``kwargs`` override its registered defaults.

    >>> make("frozen_lake", size=5).action_names
    ('Left', 'Down', 'Right', 'Up')

    Raises ``ValueError`` on an unknown or ambiguous name (listing the known ones), ``TypeError`` on an unknown
    argument or a target that does not build a ``TextEnvironment``.
    """
    return recipe(name, **kwargs).build()


def recipe(name: str, /, **kwargs: Any) -> Recipe:
    """What :func:`make` builds, not built yet. Raises ``ValueError`` on an unknown or ambiguous name."""
    target, defaults = _lookup(name)
    return Recipe(name, target, {**defaults, **kwargs})


def _lookup(name: str) -> tuple[str | Factory, dict[str, Any]]:
    """Target and default arguments of ``name``."""
    if ":" in name:
        return name, {}
    offers = _installed().get(name, ())
    targets = {each.value: _distribution(each) for each in offers}
    if name in _REGISTRY:
        if clash := {value: owner for value, owner in targets.items() if value != _REGISTRY[name][0]}:
            value, owner = next(iter(clash.items()))
            raise ValueError(
                f"environment {name!r} is registered as {_REGISTRY[name][0]!r}, and {owner} offers {value!r} under "
                f"the same name; rename its entry point or name the class itself: {value}"
            )
        return _REGISTRY[name]
    if len(targets) > 1:
        both = " and ".join(f"{value!r} of {owner}" for value, owner in sorted(targets.items()))
        raise ValueError(
            f"environment {name!r} is offered twice: {both}; uninstall one or name the class itself, module:Class"
        )
    if targets:
        return next(iter(targets)), {}
    raise ValueError(f"unknown environment {name!r}; known: {', '.join(registered_names())}, or module:Class")


def kind_of(name: str) -> type[TextEnvironment]:
    """The class of the environment ``name``; the base class where that cannot be told without building it."""
    try:
        target, _ = _lookup(name)
        factory = _load(name, target) if isinstance(target, str) else target
    except (ValueError, TypeError):
        return TextEnvironment
    return factory if isinstance(factory, type) and issubclass(factory, TextEnvironment) else TextEnvironment


def unregistered_code(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """What building the environment would import that nobody registered here; the environment is not built.

    >>> unregistered_code("bandit", {}), unregistered_code("lakes:Frozen", {})
    ([], ['lakes:Frozen'])
    """
    return [name] if ":" in name else kind_of(name).code_in(arguments)


def built_in_labels() -> dict[str, str]:
    """``failure_labels`` of all built-in environments, which are imported for it."""
    ours = f"{__package__}."
    names = [name for name, (target, _) in _REGISTRY.items() if str(target).startswith(ours)]
    return {label: meaning for name in names for label, meaning in kind_of(name).failure_labels.items()}


def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by name; read again only where ``sys.path`` changed, for it takes tens of milliseconds."""
    return _installed_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _installed_on(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for each in entry_points(group=GROUP):
        found[each.name] = (*found.get(each.name, ()), each)
    return found


def _distribution(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name}" if entry.dist else "a distribution without a name"


def _load(name: str, target: str) -> Factory:
    module_name, _, attribute = target.partition(":")
    try:
        factory: Any = importlib.import_module(module_name)
        for part in attribute.strip().split("."):
            factory = getattr(factory, part)
    except Exception as error:  # importing runs code of others
        raise ValueError(
            f"environment {name!r}: cannot import {target!r} ({type(error).__name__}: {error})"
        ) from error
    if not callable(factory):
        raise TypeError(f"environment {name!r}: {target!r} is not a class or function")
    return factory


def _check_arguments(name: str, factory: Factory, arguments: dict[str, Any]) -> None:
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # written in C: what it builds, or its own error, says the rest
        return
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    unknown = sorted(set(arguments) - set(parameters))
    if unknown:
        raise TypeError(
            f"environment {name!r}: unknown argument {unknown[0]!r}, "
            f"allowed: {', '.join(parameters) or 'none'}"
        )


def canonical(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What ``make(name, **arguments)`` builds, the same for all its spellings: ``module:Class`` and every argument.

    >>> canonical("bandit_reversed", {}) == canonical("bandit", {"reversed_meaning": True})
    True
    """
    target, defaults = _lookup(name)
    factory = _load(name, target) if isinstance(target, str) else target
    own = {
        each.name: each.default
        for each in inspect.signature(factory).parameters.values()
        if each.default is not inspect.Parameter.empty
    }
    where = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__qualname__)}"
    return where, {**own, **defaults, **arguments}


# Presets. "paper" is arXiv 2504.20073; "ragen_v1" and "ragen_v2" are the values in the authors' code, which differ
# from the paper's and from each other. docs/environments.md has them side by side.
register("bandit", "starpo.environments.bandit:Bandit")
register("bandit_paper", "starpo.environments.bandit:Bandit", low_reward=0.15)
register("bandit_ragen", "starpo.environments.bandit:Bandit", low_reward=0.1, high_probability=0.25)
register("bandit_occupations", "starpo.environments.bandit:Bandit", names="occupations")
register("bandit_reversed", "starpo.environments.bandit:Bandit", reversed_meaning=True)
register("frozen_lake", "starpo.environments.frozen_lake:FrozenLake")
register(
    "frozen_lake_paper",
    "starpo.environments.frozen_lake:FrozenLake",
    size=4,
    frozen_probability=0.8,
    success_probability=1 / 3,
)
register(
    "frozen_lake_ragen_v2",
    "starpo.environments.frozen_lake:FrozenLake",
    size=4,
    frozen_probability=0.9,
    success_probability=0.8,
    coordinates=True,
)
register(
    "frozen_lake_ragen_v2_no_slip",
    "starpo.environments.frozen_lake:FrozenLake",
    size=4,
    frozen_probability=0.9,
    slippery=False,
    coordinates=True,
)
register("frozen_lake_8x8", "starpo.environments.frozen_lake:FrozenLake", size=8)
register("frozen_lake_no_slip", "starpo.environments.frozen_lake:FrozenLake", slippery=False)
register("sokoban", "starpo.environments.sokoban:Sokoban")
register("sokoban_different_vocab", "starpo.environments.sokoban:Sokoban", symbols=dict(DIFFERENT_SYMBOLS))
# 2 to 10 moves have the mean, 6, of RAGEN's rooms of this size (5.8).
register("sokoban_large", "starpo.environments.sokoban:Sokoban", size=(8, 8), num_boxes=2, max_optimal=10)
# Rooms as hard as RAGEN's own, length by length; the longest of the 500 measured needs 11 moves at either size.
register("sokoban_paper", "starpo.environments.sokoban:Sokoban", lengths="ragen", max_optimal=11)
register(
    "sokoban_different_vocab_paper",
    "starpo.environments.sokoban:Sokoban",
    lengths="ragen",
    max_optimal=11,
    symbols=dict(DIFFERENT_SYMBOLS),
)
register(
    "sokoban_large_paper",
    "starpo.environments.sokoban:Sokoban",
    size=(8, 8),
    num_boxes=2,
    lengths="ragen",
    max_optimal=11,
)
register(
    "sokoban_ragen_v2",
    "starpo.environments.sokoban:Sokoban",
    lengths="ragen",
    max_optimal=11,
    coordinates=True,
)
register("webshop", "starpo.environments.webshop.environment:WebShop")
register(
    "webshop_easy",
    "starpo.environments.webshop.environment:WebShop",
    products=48,
    difficulty="easy",
    page_size=3,
)
register("gymnasium", "starpo.environments.gymnasium_adapter:Gymnasium")
register("reasoning_gym", "starpo.environments.reasoning_gym_adapter:ReasoningGym")
register("verifiers", "starpo.environments.verifiers_adapter:Verifiers")

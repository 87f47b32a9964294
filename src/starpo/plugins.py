"""Finding an estimator, a loss or a reward term by its registered name or by ``module:function``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starpo.errors import UserError


def resolve(kind: str, name: str, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function registered under ``name``, or the one that ``module:function`` points to.

    Args:
        kind: what it is, for messages ("advantage estimator").
        name: a key of ``known``, or the import path of a user's own function.
        known: the registered functions.

    Raises:
        UserError: no such name, module or function; the message lists the known names.
    """
    if name in known:
        return known[name]
    choices = f"known: {', '.join(sorted(known))}; or module:function for your own"
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise UserError(f"unknown {kind} {name!r}; {choices}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{kind} {name!r}: cannot import {module_name!r} ({error}); {choices}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise UserError(f"{kind} {name!r}: {module_name!r} has no function {attribute!r}; {choices}")
    return function


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the keyword-only parameters, those a user may set.

    Example: ``parameter_names(estimators.rloo)`` is ``("singletons",)``.
    """
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def bind(
    kind: str, name: str, known: Mapping[str, Callable[..., Any]], parameters: Mapping[str, Any]
) -> Callable[..., Any]:
    """Resolve ``name`` and fix its parameters, refusing those it does not take before any work is done.

    Raises:
        UserError: as :func:`resolve`, or a parameter that the function has not.

    Example: ``bind("advantage estimator", "gae", ESTIMATORS, {"lam": 0.95})(batch)``.
    """
    function = resolve(kind, name, known)
    open_ended = any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(function).parameters.values()
    )
    unknown = [] if open_ended else sorted(set(parameters) - set(parameter_names(function)))
    if unknown:
        names = ", ".join(parameter_names(function)) or "none"
        raise UserError(
            f"{kind} {name!r} has no parameter {', '.join(map(repr, unknown))}; it takes: {names}"
        )
    return partial(function, **parameters)

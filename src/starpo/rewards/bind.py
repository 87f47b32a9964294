"""From the section ``reward.terms`` to terms that can be asked: names, parameters and weights, checked before any work.

A parameter is compared with the function's annotation, where it has one: a text in the place of a number, or a truth
value, is refused here and not in the middle of a run.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from starpo.errors import UserError
from starpo.plugins import resolve
from starpo.rewards.registry import TERMS
from starpo.rewards.trajectory import Missing, Trajectory

#: What every term may be given: a factor on its values.
WEIGHT: Final = "weight"
#: What a class may ask the run for: a folder of its own, which may not exist yet.
FOLDER: Final = "folder"
#: Of a function's arguments, those that are no parameters: the trajectory and its group.
_GIVEN: Final = 2


@dataclass(frozen=True)
class Term:
    """A reward term with its parameters."""

    name: str
    """Key in ``reward.terms``."""
    function: Callable[[Trajectory, Sequence[Trajectory]], Sequence[float | Missing]]
    """Trajectory and the other members of its group -> a value per turn."""
    weight: float = 1.0
    """Factor on its values."""

    @property
    def key(self) -> str:
        """Its place in the parameters, for messages."""
        return f"reward.terms.{self.name}"

    def prepare(self, trajectories: Sequence[Trajectory]) -> None:
        """Show it all trajectories at once, where its class has a method for that."""
        if callable(prepare := getattr(self.function, "prepare", None)):
            try:
                prepare(trajectories)
            except Exception as error:  # may be a user's own
                raise UserError(
                    f"{self.key}: its method prepare raised {type(error).__name__}: {error}; mend it and run again"
                ) from error


def bind_terms(
    parameters: Mapping[str, Mapping[str, Any] | None], folder: Path | None = None
) -> dict[str, Term]:
    """Look up terms by name or ``module:function`` (or ``module:Class``) and fix their parameters.

    Args:
        parameters: term -> its keyword arguments and ``weight``, in the order the terms are to be listed; None: it is
            switched off.
        folder: where classes that ask for a ``folder`` get one of their own, by their term's name; None: nowhere.

    Returns:
        term -> :class:`Term`, without those that are switched off.

    Raises:
        UserError: unknown term or parameter, a missing one, or one of the wrong kind.

    Example: ``bind_terms({"environment": {}, "format_penalty": {"penalty": 0.1, "weight": 2}})``.
    """
    return {
        name: _bind(name, dict(arguments), folder)
        for name, arguments in parameters.items()
        if arguments is not None
    }


def _bind(name: str, arguments: dict[str, Any], folder: Path | None) -> Term:
    key = f"reward.terms.{name}"
    try:
        function = resolve("reward term", name, TERMS)
    except UserError as error:
        raise UserError(f"{key}: {error}") from None
    weight = arguments.pop(WEIGHT, 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise UserError(
            f"{key}.{WEIGHT} = {weight!r}: it must be a number; the term's values are multiplied by it"
        )
    accepted, required, open_ended = _parameters(function)
    if WEIGHT in accepted:
        raise UserError(
            f"{key}: its parameter {WEIGHT!r} is every term's own factor; give the function's another name"
        )
    asks = inspect.isclass(function) and FOLDER in accepted
    takes = [each for each in accepted if not (asks and each == FOLDER)]
    if unknown := [] if open_ended else sorted(set(arguments) - set(takes)):
        raise UserError(
            f"{key}.{unknown[0]}: reward term {name!r} has no parameter {unknown[0]!r}; "
            f"it takes: {', '.join([*takes, WEIGHT])}"
        )
    if missing := [each for each in required if each in takes and each not in arguments]:
        raise UserError(f"{key} needs {' and '.join(missing)}; add {key}.{missing[0]}")
    hints = _hints(function)
    typed = {each: _typed(f"{key}.{each}", value, hints.get(each)) for each, value in arguments.items()}
    if not inspect.isclass(function):
        return Term(name, _with(function, typed), float(weight))
    if asks:
        typed[FOLDER] = None if folder is None else folder / name.replace(":", "_")
    build: Callable[..., Any] = function
    try:
        return Term(name, build(**typed), float(weight))
    except Exception as error:  # may be a user's own
        raise UserError(f"{key}: {error or type(error).__name__}; correct its parameters") from error


def _with(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    return lambda trajectory, group: function(trajectory, group, **parameters)


def _parameters(function: Callable[..., Any]) -> tuple[list[str], list[str], bool]:
    """Names of what a user may set, of those without a default, and whether any other name is taken too."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C: calling it says the rest
        return [], [], True
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    settable = [each for each in found[0 if inspect.isclass(function) else _GIVEN :] if each.kind in kinds]
    required = [each.name for each in settable if each.default is inspect.Parameter.empty]
    return [each.name for each in settable], required, open_ended


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (NameError, TypeError, AttributeError):  # annotations that only a type checker can read
        return {}


def _typed(key: str, value: Any, hint: Any) -> Any:
    """``value`` as ``hint`` has it, such as a path for a text; raises ``UserError`` where it does not fit."""
    if hint is None:
        return value
    try:
        return TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UserError(f"{key} = {value!r}: {problem[:1].lower()}{problem[1:]}; correct it") from None
    except PydanticUserError:  # a kind that is not for configuration files
        return value

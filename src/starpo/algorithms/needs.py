"""What an advantage estimator needs from a run, declared beside the estimator itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "starpo_needs"


@dataclass(frozen=True)
class Needs:
    """Conditions under which an estimator makes sense."""

    critic: bool = False
    """Reads ``AdvantageBatch.values``: a critic is trained."""
    group: bool = False
    """Compares attempts at the same task: at least two members per group."""


def needs(*, critic: bool = False, group: bool = False) -> Callable[[Function], Function]:
    """Declare the needs of the estimator that is defined below; without a declaration it has none.

    Example: ``@needs(group=True)`` above ``def relative_to_best(batch, *, margin=0.0)``.
    """

    def declare(estimator: Function) -> Function:
        setattr(estimator, _ATTRIBUTE, Needs(critic, group))
        return estimator

    return declare


def needs_of(estimator: Callable[..., Any]) -> Needs:
    """The declared needs of ``estimator``."""
    declared = getattr(estimator, _ATTRIBUTE, Needs())
    assert isinstance(declared, Needs)
    return declared

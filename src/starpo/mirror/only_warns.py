"""Failures of a mirror that must not reach the run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

logger = logging.getLogger("starpo.mirror.mirror")

FAILURES_IN_A_ROW = 3
"""Then MLflow is left alone: each attempt may wait out a database timeout."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class CountsFailures(Protocol):
    """What a mirror remembers of its failures."""

    failures: int
    warned: bool


_M = TypeVar("_M", bound=CountsFailures)


def only_warns(method: Callable[Concatenate[_M, _P], _R]) -> Callable[Concatenate[_M, _P], _R | None]:
    """Turn every exception of a mirror's method into one warning per mirror; the method then returns None."""

    @functools.wraps(method)
    def wrapped(self: _M, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        if self.failures >= FAILURES_IN_A_ROW:
            return None
        try:
            result = method(self, *args, **kwargs)
        except Exception as error:
            self.failures += 1
            level = logging.DEBUG if self.warned else logging.WARNING
            self.warned = True
            logger.log(
                level,
                "MLflow: %s failed (%s: %s). The run goes on and its files are complete; further failures "
                "are not reported, and after %d in a row MLflow is left alone.",
                method.__name__,
                type(error).__name__,
                str(error).partition("\n")[0],
                FAILURES_IN_A_ROW,
            )
            return None
        self.failures = 0
        return result

    return wrapped

"""What kinds of values environments take as arguments; configurations hold whatever YAML allows."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def is_whole(value: Any) -> bool:
    """A whole number, and no truth value, which Python counts among them."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A number, and no truth value; it may be infinite or not a number, which no comparison lets pass."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_switches(environment: str, **switches: Any) -> None:
    """Raise ``ValueError`` unless all are true or false: any other value, such as the text ``no``, has a truth too."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"{environment}: {name} is {value!r}, allowed: true, false")

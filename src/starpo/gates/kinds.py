"""The two kinds of expectation. GX calls the difference severity and shows both in the Data Docs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

Kind = Callable[..., Expectation]
"""``whole_table`` or ``single_row``."""

_CODE = "This is a fault of the code that wrote the table: mend it."


def whole_table(kind: type[Expectation], says: str, *, remedy: str = _CODE, **arguments: Any) -> Expectation:
    """A breach rejects the table and stops the run.

    Args:
        kind: class of the expectation.
        says: what must hold, as a sentence without a full stop.
        remedy: what the user can do about a breach, with full stop.
        arguments: of the expectation.
    """
    return kind(severity=FailureSeverity.CRITICAL, notes=says, meta={"remedy": remedy}, **arguments)


def single_row(kind: type[Expectation], says: str, **arguments: Any) -> Expectation:
    """A breach concerns its trajectory, which is quarantined; the run goes on and the Data Docs show it."""
    return kind(
        severity=FailureSeverity.WARNING,
        notes=says,
        meta={"remedy": "The trajectory is quarantined."},
        **arguments,
    )


def constant(column: str, value: int | None, says: str, remedy: str = _CODE) -> list[Expectation]:
    """``column`` holds ``value`` everywhere; nothing where the value is unknown."""
    if value is None:
        return []
    return [
        whole_table(gxe.ExpectColumnValuesToBeInSet, says, remedy=remedy, column=column, value_set=[value])
    ]

"""Numbers and rows on their way into the page, whose JSON knows neither NaN nor infinity."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import pandas as pd


def finite(value: Any) -> bool:
    """Whether ``value`` is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def short(value: float, digits: int = 4) -> float | None:
    """``value`` to so many significant digits; None where it is not finite.

    >>> short(0.123456)
    0.1235
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def shorts(values: Iterable[float]) -> list[float | None]:
    """:func:`short` of each."""
    return [short(float(value)) for value in values]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as dictionaries."""
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """:func:`records` without the cells that hold no value."""
    return [
        {key: value for key, value in row.items() if value is not None and not _is_nan(value)}
        for row in records(frame)
    ]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)

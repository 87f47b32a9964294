"""An iteration's metrics as a table: one row per number, with the bounds it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import pyarrow as pa

from starpo.gates.expected import Expected

#: KL estimates are at least 0 but for rounding.
_ROUNDING = 1e-3


def metrics_table(metrics: Mapping[str, Any], expected: Expected) -> pa.Table:
    """Columns ``metric``, ``value``, ``low`` and ``high``; metrics that are no numbers are left out."""
    bounds = _bounds(metrics, expected)
    rows = [
        (name, float(value), *map(float, bounds.get(name, (-inf, inf))))
        for name, value in sorted(metrics.items())
        if isinstance(value, int | float)
    ]
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    return pa.table(dict(zip(("metric", "value", "low", "high"), map(list, columns), strict=True)))


def _bounds(metrics: Mapping[str, Any], expected: Expected) -> dict[str, tuple[float, float]]:
    """Smallest and largest value by metric; metrics that are not named have no bound."""
    limits = expected.limits
    known: dict[str, tuple[float, float]] = {
        "success": (0, 1),
        "format_valid_rate": (0, 1),
        "entropy": (0, limits.max_entropy),
        "approx_kl": (-_ROUNDING, limits.max_approx_kl),
        "gradient_norm": (0, limits.max_gradient_norm),
        "critic_gradient_norm": (0, limits.max_gradient_norm),
        "explained_variance": (-inf, 1 + _ROUNDING),
    }
    for name in metrics:
        # An indicator's stage, quiet (0) to alarm (2), whatever its name says that it measures.
        if name.partition("_")[0] == "monitor":
            known[name] = (0, 2)
        elif name.endswith("_loss"):
            known[name] = (-limits.max_loss, limits.max_loss)
        elif name.endswith("_share"):
            known[name] = (0, 1)
    for name, value in (("iteration", expected.iteration), ("policy_step", expected.policy_step)):
        if value is not None:
            known[name] = (value, value)
    return known

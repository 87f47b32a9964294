"""What must hold of an iteration's metrics: one row per number, with the bounds it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation

from starpo.gates.expected import Expected
from starpo.gates.kinds import whole_table

_BLOWN_UP = (
    "The update has blown up: fork an earlier iteration (run.fork_from) with a smaller learning rate or gradient_clip. "
    "A bound that is too tight for this task can be raised under gates.limits."
)

#: KL estimates are at least 0 but for rounding.
_ROUNDING = 1e-3


def bounds(metrics: Mapping[str, Any], expected: Expected) -> dict[str, tuple[float, float]]:
    """Smallest and largest value by metric; metrics that are not named have no bound."""
    limits = expected.gates.limits
    known = {
        "success": (0.0, 1.0),
        "format_valid_rate": (0.0, 1.0),
        "entropy": (0.0, limits.max_entropy),
        "approx_kl": (-_ROUNDING, limits.max_approx_kl),
        "gradient_norm": (0.0, limits.max_gradient_norm),
        "critic_gradient_norm": (0.0, limits.max_gradient_norm),
        "explained_variance": (-inf, 1.0 + _ROUNDING),
    }
    for name in metrics:
        # An indicator's stage, quiet (0) to alarm (2), whatever its name says that it measures.
        if name.partition("_")[0] == "monitor":
            known[name] = (0.0, 2.0)
        elif name.endswith("_loss"):
            known[name] = (-limits.max_loss, limits.max_loss)
        elif name.endswith("_share"):
            known[name] = (0.0, 1.0)
    for name, value in (("iteration", expected.iteration), ("policy_step", expected.policy_step)):
        if value is not None:
            known[name] = (value, value)
    return known


def expectations(expected: Expected) -> list[Expectation]:
    """The suite for the metrics of one iteration."""
    return [
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "all metrics are finite",
            remedy=_BLOWN_UP,
            column="finite",
            value_set=[True],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "every metric is within its bounds",
            remedy=_BLOWN_UP,
            column="outside",
            max_value=0,
        ),
    ]

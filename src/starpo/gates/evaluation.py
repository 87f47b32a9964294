"""What must hold of an evaluation's turns: as in training, but that no row can be given up."""

from __future__ import annotations

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation

from starpo.gates.expected import Expected
from starpo.gates.kinds import whole_table
from starpo.gates.rollouts import turn_keys, turn_rows


def expectations(expected: Expected) -> list[Expectation]:
    """The suite for the turns of one policy on one set of prompts."""
    held_out = whole_table(
        gxe.ExpectColumnValuesToBeInSet,
        "the split is held out",
        column="split",
        value_set=["validation", "test"],
    )
    return [*turn_keys(expected), held_out, *turn_rows(expected, whole_table)]

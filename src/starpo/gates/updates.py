"""What must hold of what an update saw: one row per turn of each trained trajectory."""

from __future__ import annotations

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation

from starpo.gates.expected import Expected
from starpo.gates.frames import scalar_columns
from starpo.gates.kinds import constant, whole_table
from starpo.store.schemas import UPDATES


def expectations(expected: Expected) -> list[Expectation]:
    """The suite for one iteration's table of tokens."""
    return [
        whole_table(
            gxe.ExpectTableColumnsToMatchSet,
            "all columns of the table of updates are there",
            column_set=scalar_columns(UPDATES),
            exact_match=False,
        ),
        whole_table(
            gxe.ExpectCompoundColumnsToBeUnique,
            "no turn occurs twice",
            column_list=["iteration", "stream", "group", "member", "turn"],
        ),
        *constant("iteration", expected.iteration, "the iteration is that of the file"),
        *constant(
            "policy_step",
            expected.policy_step,
            "the weights' version (policy_step) is that of the iteration's policy",
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "all lists have an entry per token",
            column="uneven",
            value_set=[0],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "every turn has a token",
            column="n_advantages",
            min_value=1,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "advantages, values, log-probs and ratios are finite",
            column="finite",
            value_set=[True],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "the learner's log-probs are at most 0",
            column="largest_logprob",
            max_value=expected.gates.quarantine.max_logprob,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "ratios are not negative",
            column="smallest_ratio",
            min_value=0,
        ),
    ]

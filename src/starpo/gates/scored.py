"""What must hold of an iteration's scored trajectories, one row each."""

from __future__ import annotations

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation

from starpo.gates.expected import Expected
from starpo.gates.frames import scalar_columns
from starpo.gates.kinds import constant, whole_table
from starpo.store.schemas import SCORED

_MANY = (
    "So many faults have one cause: mend it, remove the rollouts of this iteration if they are at fault, or raise "
    "gates.max_quarantined_share."
)


def expectations(expected: Expected) -> list[Expectation]:
    """The suite for one iteration. Rows at fault are quarantined by now; what is left must be sound."""
    rules = expected.gates.quarantine
    return [
        whole_table(
            gxe.ExpectTableColumnsToMatchSet,
            "all columns of the table of trajectories are there",
            column_set=scalar_columns(SCORED),
            exact_match=False,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeOfType, "returns are float32", column="return", type_="float32"
        ),
        whole_table(
            gxe.ExpectCompoundColumnsToBeUnique,
            "no trajectory occurs twice",
            column_list=["iteration", "stream", "group", "member"],
        ),
        whole_table(gxe.ExpectColumnValuesToNotBeNull, "every trajectory has a return", column="return"),
        *constant("iteration", expected.iteration, "the iteration is that of the file"),
        *constant(
            "policy_step",
            expected.policy_step,
            "the weights' version (policy_step) is that of the iteration's policy",
        ),
        whole_table(
            gxe.ExpectColumnMeanToBeBetween,
            "few trajectories are quarantined",
            remedy=_MANY,
            column="quarantined_share",
            max_value=expected.gates.max_quarantined_share,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "no quarantined trajectory is kept",
            column="kept_quarantined",
            value_set=[False],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "a group is kept or dropped as a whole",
            column="kept_partly",
            value_set=[0],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeInSet,
            "every turn has a reward",
            column="turn_rewards_missing",
            value_set=[0],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "the return is the sum of the turn rewards",
            column="return_error",
            max_value=rules.return_tolerance,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "no turn's reward exceeds gates.quarantine.max_absolute_reward",
            column="largest_reward",
            max_value=rules.max_absolute_reward,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "the spread of a group is not negative",
            column="group_std",
            min_value=0,
        ),
    ]

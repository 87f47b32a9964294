"""What must hold of an iteration's rollouts: one row per turn on training instances."""

from __future__ import annotations

from great_expectations import expectations as gxe
from great_expectations.expectations import Expectation

from starpo.gates.expected import Expected
from starpo.gates.frames import scalar_columns
from starpo.gates.kinds import Kind, constant, single_row, whole_table
from starpo.store.schemas import TURNS

_SPLIT = (
    "Training on this table would spoil the evaluation. Look at the environment's split (its first observation, or "
    "declared_split) and at the instances in the kept file."
)


def expectations(expected: Expected) -> list[Expectation]:
    """The suite for the rollouts of one iteration."""
    return [*turn_keys(expected), *_training_groups(expected), *turn_rows(expected, single_row)]


def turn_keys(expected: Expected) -> list[Expectation]:
    """What tells turns and policies apart, in training and evaluation."""
    weights = "the weights' version (policy_step) is that of the iteration's policy"
    stale = (
        "Another policy than this iteration's played: look at the engine's weight sync, or remove the run."
    )
    return [
        whole_table(
            gxe.ExpectTableColumnsToMatchSet,
            "all columns of the table of turns are there",
            column_set=scalar_columns(TURNS),
            exact_match=False,
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeOfType, "rewards are float32", column="reward", type_="float32"
        ),
        whole_table(
            gxe.ExpectCompoundColumnsToBeUnique,
            "no turn occurs twice",
            column_list=["iteration", "stream", "group", "member", "turn"],
        ),
        whole_table(gxe.ExpectColumnValuesToNotBeNull, "every turn has an observation", column="observation"),
        *constant("iteration", expected.iteration, "the iteration is that of the file"),
        *constant("policy_step", expected.policy_step, weights, stale),
        whole_table(
            gxe.ExpectColumnPairValuesToBeEqual,
            "every first observation belongs to the table's split",
            remedy=_SPLIT,
            column_A="split",
            column_B="own_split",
            ignore_row_if="either_value_is_missing",
        ),
    ]


def turn_rows(expected: Expected, kind: Kind) -> list[Expectation]:
    """What must hold of each turn; ``kind`` is ``single_row`` in training, ``whole_table`` in an evaluation."""
    rules = expected.gates.quarantine
    between, equal, members = (
        gxe.ExpectColumnValuesToBeBetween,
        gxe.ExpectColumnPairValuesToBeEqual,
        gxe.ExpectColumnValuesToBeInSet,
    )
    return [
        kind(between, "every turn has a sampled token", column="n_tokens", min_value=1),
        kind(between, "every turn has context", column="n_context", min_value=1),
        kind(equal, "every sampled token has a log-prob", column_A="n_tokens", column_B="n_logprobs"),
        kind(members, "log-probs are finite", column="logprobs_finite", value_set=[True]),
        kind(between, "log-probs are at most 0", column="largest_logprob", max_value=rules.max_logprob),
        kind(
            between, "log-probs are above the floor", column="smallest_logprob", min_value=rules.min_logprob
        ),
        kind(between, "rewards are finite", column="reward", min_value=_LOWEST, max_value=-_LOWEST),
        kind(gxe.ExpectColumnValuesToNotBeNull, "every turn has a reward", column="reward"),
        kind(
            between,
            "returns lie in the environment's return_range",
            column="return_excess",
            max_value=rules.return_tolerance,
        ),
    ]


#: Beyond every finite float32.
_LOWEST = -3.5e38


def _training_groups(expected: Expected) -> list[Expectation]:
    lost = (
        "A trajectory has no row where its environment failed at reset or its first prompt left no room for a "
        "response (agent.max_tokens_per_trajectory); raise gates.max_quarantined_share to go on without them."
    )
    only_train = whole_table(
        gxe.ExpectColumnValuesToBeInSet, "the split is train", column="split", value_set=["train"]
    )
    size = expected.group_size
    if size is None:
        return [only_train]
    return [
        only_train,
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "no member is numbered beyond rollout.group_size",
            column="member",
            min_value=0,
            max_value=size - 1,
        ),
        single_row(
            gxe.ExpectColumnValuesToBeInSet,
            "every group has rollout.group_size members",
            column="members",
            value_set=[size],
        ),
        whole_table(
            gxe.ExpectColumnValuesToBeBetween,
            "few trajectories of groups 0, 1, 2, … are missing",
            remedy=lost,
            column="missing_share",
            max_value=expected.gates.max_quarantined_share,
        ),
    ]

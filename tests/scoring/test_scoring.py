"""From turns to scored trajectories, by hand-computed rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from builders import turn_row, turns_table

from starpo.config.reward import FilterConfig
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.store.schemas import SCORED

TERMS = {"environment": {}, "format_penalty": {"penalty": 0.25}}


def scored(*rows: dict[str, Any], terms: dict[str, dict[str, float]] | None = None) -> pa.Table:
    return score_turns(turns_table(*rows), bind_terms(TERMS if terms is None else terms))


def outcomes(returns: dict[int, list[float]], *, broken: tuple[tuple[int, int], ...] = ()) -> pa.Table:
    """One turn per trajectory; ``returns[group][member]``; ``broken`` ones ended by an environment error."""
    return scored(
        *[
            turn_row(
                group=group,
                member=member,
                reward=value,
                trajectory_stop="environment_error" if (group, member) in broken else "terminated",
            )
            for group, values in returns.items()
            for member, value in enumerate(values)
        ]
    )


def marked(table: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    return mark_kept(table, FilterConfig(**{"keep_ratio": 0.5} | changes)).to_pylist()


def test_a_random_filter_s_lots_are_the_run_s_own_and_change_with_seed_and_iteration() -> None:
    def kept(seed: int, groups: int = 12, iteration: int = 0) -> list[int]:
        rows = [
            turn_row(group=group, member=member, reward=float(member), iteration=iteration)
            for group in range(groups)
            for member in range(2)
        ]
        config = FilterConfig(keep_ratio=0.5, mode="random")
        table = mark_kept(score_turns(turns_table(*rows), bind_terms({"environment": {}})), config, seed)
        return sorted({row["group"] for row in table.to_pylist() if row["kept"]})

    assert len(kept(0)) == 6
    assert kept(0) == kept(0)
    assert kept(0) != kept(1)
    assert kept(0) != kept(0, iteration=1)
    # Further groups push some out and never bring one back.
    assert set(kept(0, groups=24)) & set(range(12)) <= set(range(12))
    order = [set(kept(0, groups=count)) for count in (12, 13)]
    assert len(order[0] - order[1]) <= 1


def test_a_trajectory_is_summed_up_as_computed_by_hand() -> None:
    (row,) = scored(
        turn_row(turn=0, reward=1.0, context_ids=[1] * 5, response_ids=[2] * 3, response_logprobs=[-1.0] * 3),
        turn_row(turn=1, reward=0.5, format_valid=False, executed=[], context_ids=[1] * 2),
        turn_row(turn=2, reward=2.0, executed=["Up", "Up"], success=True),
    ).to_pylist()
    assert row["turn_rewards"] == [1.0, 0.25, 2.0]
    assert row["environment_return"] == 3.5
    assert row["return"] == 3.25
    assert json.loads(row["terms"]) == {"environment": 3.5, "format_penalty": -0.25}
    assert (row["turns"], row["actions"]) == (3, 3)
    assert (row["response_tokens"], row["tokens"]) == (3 + 2 + 2, 7 + 5 + 2 + 3)
    assert row["format_valid_share"] == pytest.approx(2 / 3)
    assert row["success"] is True
    assert (row["kept"], row["quarantined"], row["reason"]) == (False, False, "")


def test_success_is_that_of_the_last_turn() -> None:
    rows = scored(turn_row(turn=0, success=True), turn_row(turn=1, success=False)).to_pylist()
    assert [row["success"] for row in rows] == [False]


def test_trajectories_stay_in_their_order_and_apart() -> None:
    rows = scored(
        turn_row(group=0, member=0, turn=0),
        turn_row(group=0, member=0, turn=1),
        turn_row(group=0, member=1, turn=0),
        turn_row(group=1, member=0, turn=0),
    ).to_pylist()
    assert [(row["group"], row["member"], row["turns"]) for row in rows] == [(0, 0, 2), (0, 1, 1), (1, 0, 1)]


def test_the_groups_that_spread_most_are_kept_whole() -> None:
    rows = marked(outcomes({0: [0, 0], 1: [0, 1], 2: [0, 4], 3: [1, 1]}))
    assert [(row["group"], row["kept"], row["reason"]) for row in rows] == [
        (0, False, "zero_spread"),
        (0, False, "zero_spread"),
        (1, True, "kept"),
        (1, True, "kept"),
        (2, True, "kept"),
        (2, True, "kept"),
        (3, False, "zero_spread"),
        (3, False, "zero_spread"),
    ]
    assert [row["group_mean"] for row in rows[::2]] == [0.0, 0.5, 2.0, 1.0]
    # unbiased: |a - b| / sqrt(2)
    assert [row["group_std"] for row in rows[::2]] == pytest.approx([0.0, 0.5**0.5, 8**0.5, 0.0])


def test_a_group_beyond_the_keep_ratio_says_so() -> None:
    rows = marked(outcomes({0: [0, 1], 1: [0, 4]}))
    assert [row["reason"] for row in rows] == ["beyond_keep_ratio"] * 2 + ["kept"] * 2


def test_a_quarantined_trajectory_has_no_part_in_its_group() -> None:
    rows = marked(outcomes({0: [0, 1, 1000], 1: [5, 5, 5]}, broken=((0, 2),)), keep_ratio=1.0)
    assert [row["kept"] for row in rows] == [True, True, False, False, False, False]
    assert rows[0]["group_mean"] == 0.5
    assert (rows[2]["quarantined"], rows[2]["reason"]) == (True, "environment_error")
    assert (rows[2]["group_mean"], rows[2]["group_std"]) == (0.0, 0.0)


def test_a_group_left_with_one_member_has_no_spread() -> None:
    rows = marked(outcomes({0: [0, 1], 1: [0, 3]}, broken=((0, 1),)), keep_ratio=1.0)
    assert [row["reason"] for row in rows] == ["single_member", "environment_error", "kept", "kept"]


@pytest.mark.parametrize(
    "table",
    [
        outcomes({0: [1, 1], 1: [0, 0]}),
        outcomes({0: [1, 0]}, broken=((0, 0), (0, 1))),
        SCORED.empty_table(),
    ],
    ids=["no spread anywhere", "all quarantined", "no trajectory"],
)
def test_everything_filtered_is_a_normal_outcome(table: pa.Table) -> None:
    result = mark_kept(table, FilterConfig(keep_ratio=0.5))
    assert result.schema == SCORED
    assert result.num_rows == table.num_rows
    assert not any(result["kept"].to_pylist())
    assert all(reason for reason in result["reason"].to_pylist())


def test_without_a_filter_every_group_is_kept_also_without_spread() -> None:
    rows = marked(outcomes({0: [1, 1], 1: [0, 1]}), keep_ratio=1.0, keep_zero_spread=True)
    assert all(row["kept"] for row in rows)


def test_no_row_is_lost_and_no_other_column_is_touched() -> None:
    before = outcomes({0: [0, 1], 1: [2, 2], 2: [0, 9]})
    after = mark_kept(before, FilterConfig(keep_ratio=0.5))
    filled = {"group_mean", "group_std", "kept", "reason"}
    untouched = [name for name in SCORED.names if name not in filled]
    assert after.select(untouched).equals(before.select(untouched))


def test_the_scale_of_an_environment_enters_its_terms_and_not_the_return_that_it_reported() -> None:
    rows = [
        turn_row(group=0, environment="frozen_lake", reward=1.5, format_valid=False),
        turn_row(group=1, environment="bandit", reward=1.5, format_valid=False),
    ]
    lake, bandit = score_turns(turns_table(*rows), bind_terms(TERMS), scales={"frozen_lake": 2.0}).to_pylist()
    assert (lake["return"], bandit["return"]) == (2 * 1.5 - 0.25, 1.5 - 0.25)
    assert lake["environment_return"] == bandit["environment_return"] == 1.5

"""The same trajectories scored twice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from starpo.errors import UserError
from starpo.scoring.rescoring import compare_scores


def scored(returns: list[float], kept: list[bool], groups: list[int]) -> pa.Table:
    return pa.table(
        {
            "group": groups,
            "member": [groups[:i].count(group) for i, group in enumerate(groups)],
            "return": returns,
            "kept": kept,
        }
    )


def test_returns_and_kept_groups_are_compared() -> None:
    before = scored([1.0, 0.0, 1.0, 1.0], [True, True, False, False], [0, 0, 1, 1])
    after = scored([1.0, 0.0, 0.5, 0.0], [False, False, True, True], [0, 0, 1, 1])
    assert compare_scores(before, after) == {
        "trajectories": 4,
        "return_before": 0.75,
        "return_after": 0.375,
        "returns_changed": 0.5,
        "groups_kept_before": 1,
        "groups_kept_after": 1,
        "groups_kept_in_both": 0,
    }


def test_rounding_is_no_change_of_a_return() -> None:
    before, after = scored([1.0], [True], [0]), scored([1.0 + 1e-8], [True], [0])
    assert compare_scores(before, after)["returns_changed"] == 0


def test_other_trajectories_are_refused() -> None:
    with pytest.raises(UserError, match="not the same"):
        compare_scores(scored([1.0], [True], [0]), scored([1.0], [True], [1]))


def test_an_iteration_without_trajectories_has_nothing_to_compare() -> None:
    empty = scored([], [], [])
    assert compare_scores(empty, empty)["trajectories"] == 0

"""Paired comparison of two policies."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from starpo.errors import UserError
from starpo.evaluation.compare import compare
from starpo.evaluation.glossary import COMPARISON
from starpo.evaluation.intervals import paired_rate_difference, proportion_interval
from starpo.store.schemas import TURNS


def test_a_comparison_holds_both_rates_and_their_paired_difference(build) -> None:
    rng = np.random.default_rng(0)
    before = rng.random(300) < 0.3
    after = before | (rng.random(300) < 0.2)
    result = compare(
        build.outcomes(before[:, None].tolist()), build.outcomes(after[:, None].tolist(), policy_step=100)
    )
    assert (result["suite"], result["environment"], result["temperature"]) == ("lake", "frozen_lake", 0.5)
    assert (result["policy_step_before"], result["policy_step_after"]) == (0, 100)
    for suffix, size in (("", 300), ("_256", 256)):
        numbers = np.arange(size)
        assert result[f"prompts{suffix}"] == result[f"trajectories{suffix}"] == size
        for name, expected in {
            "success_before": proportion_interval(before[:size], numbers),
            "success_after": proportion_interval(after[:size], numbers),
            "success_difference": paired_rate_difference(before[:size], after[:size], numbers),
        }.items():
            got = [result[name + part + suffix] for part in ("", "_low", "_high")]
            assert got == pytest.approx(list(expected))
        # Reward 1 where solved: the return's mean is the success rate.
        assert result[f"return_difference{suffix}"] == pytest.approx(result[f"success_difference{suffix}"])
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_every_key_is_explained(build) -> None:
    result = compare(build.outcomes([[1], [0]]), build.outcomes([[1], [1]]))
    names = {key.removesuffix("_256").removesuffix("_low").removesuffix("_high") for key in result}
    assert names == COMPARISON.keys()


def test_the_order_of_rows_does_not_matter(build) -> None:
    before, after = build.outcomes([[1, 0], [0, 0], [1, 1]]), build.outcomes([[1, 1], [0, 1], [1, 1]])
    turned = after.take(list(reversed(range(after.num_rows))))
    assert compare(before, turned) == compare(before, after)


@pytest.mark.parametrize("column", ["instance_seed", "dynamics_seed", "sampling_seed", "observation"])
def test_the_first_row_with_another_prompt_or_seed_is_named(build, column: str) -> None:
    rows = [build.turn(group=group) for group in range(5)]
    other = [
        row | ({column: "elsewhere" if column == "observation" else 99} if row["group"] >= 2 else {})
        for row in rows
    ]
    with pytest.raises(UserError, match=rf"prompt 2, sample 0 \(trajectory 2\) differs: {column} is"):
        compare(build.table(rows), build.table(other))


def test_later_turns_may_differ(build) -> None:
    before = build.table([build.turn()])
    after = build.table([build.turn(), build.turn(turn=1, observation="elsewhere", sampling_seed=99)])
    assert compare(before, after)["success_difference"] == 0


def test_a_prompt_or_sample_of_one_table_only_is_named(build) -> None:
    with pytest.raises(UserError, match="prompt 2, sample 0 was evaluated only before"):
        compare(build.outcomes([[1], [0], [0]]), build.outcomes([[1], [0]]))
    with pytest.raises(UserError, match="prompt 1, sample 1 was evaluated only after"):
        compare(build.outcomes([[1], [0]]), build.outcomes([[1], [0, 1]]))


@pytest.mark.parametrize(
    ("column", "value"), [("stream", "other"), ("temperature", 1.0), ("split", "validation")]
)
def test_another_suite_or_temperature_is_refused(build, column: str, value: object) -> None:
    with pytest.raises(UserError, match=f"not of one suite: {column}"):
        compare(build.outcomes([[1]]), build.outcomes([[1]], **{column: value}))


@pytest.mark.parametrize("empty_first", [True, False])
def test_an_empty_table_is_refused(build, empty_first: bool) -> None:
    tables: list[pa.Table] = [TURNS.empty_table(), build.outcomes([[1]])]
    with pytest.raises(UserError, match="empty"):
        compare(*(tables if empty_first else tables[::-1]))


def test_a_clear_improvement_excludes_zero_and_none_includes_it(build) -> None:
    low = build.outcomes([[prompt % 4 == 0] for prompt in range(256)])
    high = build.outcomes([[prompt % 2 == 0] for prompt in range(256)])
    better = compare(low, high)
    assert better["success_difference"] == 0.25
    assert better["success_difference_low"] > 0
    same = compare(low, low)
    assert same["success_difference_low"] < 0 < same["success_difference_high"]

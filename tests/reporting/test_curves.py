from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.reporting.curves import band

VALUES = st.floats(-1e6, 1e6)


def test_three_seeds_get_the_t_interval_of_their_mean() -> None:
    # 1, 2, 3: standard deviation 1, t(0.975, 2) = 4.302653
    half = 4.302653 / math.sqrt(3)
    drawn = band([{0: 1.0}, {0: 2.0}, {0: 3.0}])
    assert drawn["mid"] == [2.0]
    assert drawn["low"][0] == pytest.approx(2 - half, rel=1e-3)
    assert drawn["high"][0] == pytest.approx(2 + half, rel=1e-3)


def test_two_seeds_get_their_range_and_one_gets_no_band() -> None:
    drawn = band([{0: 1.0, 1: 5.0}, {0: 3.0}])
    assert drawn == {"x": [0, 1], "mid": [2.0, 5.0], "low": [1.0, None], "high": [3.0, None], "n": [2, 1]}


def test_a_value_that_is_not_finite_is_missing() -> None:
    assert band([{0: math.nan, 1: 1.0}, {1: math.inf}]) == {
        "x": [1],
        "mid": [1.0],
        "low": [None],
        "high": [None],
        "n": [1],
    }


def test_a_band_stays_within_the_range_of_the_metric() -> None:
    drawn = band([{0: 0.7}, {0: 0.9}, {0: 1.0}], (0.0, 1.0))
    assert drawn["high"] == [1.0]
    assert 0 <= drawn["low"][0] < 0.7


@given(st.lists(st.dictionaries(st.integers(0, 5), VALUES, max_size=6), max_size=5))
def test_the_mean_lies_in_its_band_and_every_iteration_of_a_seed_is_drawn(
    seeds: list[dict[int, float]],
) -> None:
    drawn = band(seeds)
    assert drawn["x"] == sorted({x for seed in seeds for x in seed})
    for middle, low, high, count in zip(drawn["mid"], drawn["low"], drawn["high"], drawn["n"], strict=True):
        assert (low is None) == (high is None) == (count == 1)
        if low is not None:
            # All three are rounded to four digits.
            room = 1e-3 * max(abs(low), abs(high), 1e-9)
            assert low - room <= middle <= high + room

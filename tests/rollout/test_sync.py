"""The proof that engine and learner hold the same weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from starpo.rollout.sync import SyncError, largest_difference, prove_sync

PROBE = [[1, 2, 3], [4, 5]]


class Fixed:
    """Scores the probe with given numbers."""

    def __init__(self, *rows: list[float]) -> None:
        self.rows = list(rows)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.rows


def test_the_largest_difference_over_all_tokens_counts() -> None:
    one, other = Fixed([-1.0, -2.0], [-3.0]), Fixed([-1.0, -2.5], [-2.75])
    assert largest_difference(one, other, PROBE) == 0.5
    assert prove_sync(one, other, PROBE, 0.6) == 0.5


def test_a_difference_above_the_tolerance_stops_the_run_with_the_number() -> None:
    with pytest.raises(SyncError, match=r"differ from the learner's by 0\.5 nats .*sync_tolerance = 0\.1"):
        prove_sync(Fixed([-1.0, -2.0], [-3.0]), Fixed([-1.0, -2.5], [-3.0]), PROBE, 0.1)


@pytest.mark.parametrize("row", range(3))
def test_a_log_prob_that_is_not_a_number_is_never_in_sync_wherever_it_stands(row: int) -> None:
    values = [-1.0, -2.0, -3.0]
    values[row] = math.nan
    with pytest.raises(SyncError):
        prove_sync(Fixed(values[:2], values[2:]), Fixed([-1.0, -2.0], [-3.0]), PROBE, 0.1)


def test_scores_of_different_shape_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="zip"):
        prove_sync(Fixed([-1.0], [-3.0]), Fixed([-1.0, -2.0], [-3.0]), PROBE, 0.1)

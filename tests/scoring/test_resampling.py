"""Further rounds of groups where the filter leaves too few, on made-up turns."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from builders import turn_row, turns_table

from starpo.config.reward import FilterConfig, ResampleConfig
from starpo.rewards.bind import bind_terms
from starpo.scoring.resampling import draw_until_enough, resampling_metrics
from starpo.scoring.scoring import mark_kept, score_turns

FLAT, SPREAD, WIDE = (1.0, 1.0), (0.0, 1.0), (0.0, 9.0)


class Rounds:
    """Rounds of two groups of two trajectories with given returns; remembers which were drawn."""

    def __init__(self, *rounds: tuple[tuple[float, float], tuple[float, float]], **settings: Any) -> None:
        self._rounds = rounds
        self._filter = FilterConfig(**{"keep_ratio": 1.0} | settings)
        self.drawn: list[int] = []

    def draw(self, number: int) -> pa.Table:
        self.drawn.append(number)
        return turns_table(
            *[
                turn_row(group=2 * number + group, member=member, reward=value, trajectory_stop="terminated")
                for group, values in enumerate(self._rounds[number])
                for member, value in enumerate(values)
            ]
        )

    def judge(self, turns: pa.Table) -> pa.Table:
        return mark_kept(score_turns(turns, bind_terms({"environment": {}})), self._filter)

    def run(self, **resample: int) -> pa.Table:
        return draw_until_enough(self.draw, self.judge, ResampleConfig(**resample) if resample else None)

    def kept(self, turns: pa.Table) -> list[int]:
        rows = self.judge(turns).to_pylist()
        return sorted({row["group"] for row in rows if row["kept"]})


def test_enough_groups_need_no_further_round():
    rounds = Rounds((SPREAD, WIDE), (SPREAD, WIDE))
    table = rounds.run(min_kept_groups=2, max_rounds=3)
    assert rounds.drawn == [0]
    assert table.equals(Rounds((SPREAD, WIDE)).draw(0))


def test_rounds_are_drawn_until_enough_groups_are_kept_and_no_row_is_lost():
    rounds = Rounds((FLAT, SPREAD), (FLAT, FLAT), (WIDE, FLAT), (WIDE, WIDE))
    table = rounds.run(min_kept_groups=2, max_rounds=3)
    assert rounds.drawn == [0, 1, 2]
    assert table["group"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert rounds.kept(table) == [1, 4]
    assert resampling_metrics(table, 2) == {"resample_rounds": 2.0, "resampled_groups": 4.0}


def test_after_the_last_round_what_is_there_must_do():
    rounds = Rounds((FLAT, FLAT), (FLAT, FLAT), (WIDE, WIDE))
    assert rounds.run(min_kept_groups=1, max_rounds=1)["group"].to_pylist()[-1] == 3
    assert rounds.drawn == [0, 1]


def test_without_resampling_there_is_one_round():
    rounds = Rounds((FLAT, FLAT))
    table = rounds.run()
    assert rounds.drawn == [0]
    assert resampling_metrics(table, 2) == {"resample_rounds": 0.0, "resampled_groups": 0.0}
    assert resampling_metrics(table.slice(0, 0), 2)["resample_rounds"] == 0.0


def test_groups_of_all_rounds_compete_for_the_same_quota():
    # Half of two groups is one, half of four are two: the second round takes both places.
    rounds = Rounds((FLAT, SPREAD), (WIDE, WIDE), keep_ratio=0.5)
    assert rounds.kept(rounds.run(min_kept_groups=2, max_rounds=1)) == [2, 3]


def test_each_further_round_says_why_it_is_needed(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "starpo.scoring.resampling"):
        Rounds((FLAT, SPREAD), (WIDE, FLAT)).run(min_kept_groups=2, max_rounds=2)
    assert [record.getMessage() for record in caplog.records] == [
        "re-sampling, round 1 of 2: 1 groups kept and 2 wanted (1 kept, 1 zero_spread)"
    ]


def test_where_judging_fails_what_was_drawn_is_kept_for_the_reward_node(caplog: pytest.LogCaptureFixture):
    rounds = Rounds((FLAT, FLAT), (WIDE, WIDE))

    def failing(turns: pa.Table) -> pa.Table:
        return score_turns(turns, bind_terms({"math:isqrt": {}}))

    table = draw_until_enough(rounds.draw, failing, ResampleConfig(min_kept_groups=1, max_rounds=3))
    assert (rounds.drawn, table.num_rows) == ([0], 4)
    assert "no re-sampling: reward.terms.math:isqrt, iteration 0, group 0, member 0: " in caplog.text

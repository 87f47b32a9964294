"""An environment's own score, beside reward and success: whose, and what counts where none was given."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from builders import turn_row, turns_table

from starpo.evaluation.metrics import summarise
from starpo.evaluation.scores import raw_scores
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import score_turns


def shopping(
    group: int, *told: dict[str, Any], environment: str = "webshop", **last: Any
) -> list[dict[str, Any]]:
    """One trajectory, a turn for each info."""
    rows = [
        turn_row(group=group, turn=number, environment=environment, info=json.dumps(info))
        for number, info in enumerate(told)
    ]
    return [*rows[:-1], rows[-1] | last]


def shop() -> pa.Table:
    """A perfect purchase, a poor one, and one trajectory that did nothing legal."""
    return turns_table(
        *shopping(0, {"score": 0.0}, {"score": 1.0}, success=True, reward=1.0),
        *shopping(1, {"score": 0.0}, {"score": 0.25}, reward=0.25),
        *shopping(2, {}, {}),
    )


def test_a_trajectory_has_its_last_score_and_0_where_none_was_given() -> None:
    assert raw_scores(shop()) == {(0, 0): 1.0, (1, 0): 0.25, (2, 0): 0.0}


def test_environments_that_give_no_score_are_left_out() -> None:
    lake = shopping(3, {"success": False}, environment="frozen_lake")
    assert raw_scores(turns_table(*lake)) == {}
    assert (3, 0) not in raw_scores(pa.concat_tables([shop(), turns_table(*lake)]))
    assert raw_scores(turns_table(*shopping(0, {"score": "high"}), *shopping(1, {"score": True}))) == {}


def test_evaluation_and_training_report_score_and_success_separately() -> None:
    summary = summarise(shop())
    assert summary["score"] == pytest.approx(1.25 / 3)
    assert summary["success"] == pytest.approx(1 / 3)
    assert summary["score_low"] < summary["score"] < summary["score_high"]
    metrics = rollout_metrics(shop(), score_turns(shop(), bind_terms({})))
    assert metrics["score"] == pytest.approx(1.25 / 3)
    assert metrics["success"] == pytest.approx(1 / 3)


def test_where_there_is_no_score_nothing_is_reported() -> None:
    lake = turns_table(*shopping(0, {}, environment="frozen_lake"))
    assert not [name for name in summarise(lake) if name.startswith("score")]
    assert "score" not in rollout_metrics(lake, score_turns(lake, bind_terms({})))


def test_training_counts_a_win_with_a_malformed_turn_as_a_success_without_a_valid_format() -> None:
    rows = [
        turn_row(group=0, format_valid=False),
        turn_row(group=0, turn=1, success=True),
        turn_row(group=1, success=True),
        turn_row(group=2),
        turn_row(group=3, success=True, format_valid=False),
    ]
    table = turns_table(*rows)
    metrics = rollout_metrics(table, score_turns(table, bind_terms({})))
    assert (metrics["success"], metrics["success_format_valid"]) == (0.75, 0.25)

"""What the page of trajectories holds of one turn."""

from __future__ import annotations

from builders import turn_row

from starpo.reporting.trajectories import turn_of


def test_a_turn_shows_what_the_environment_told_and_whether_the_prompt_is_a_window() -> None:
    told = '{"actions": ["click[buy now]"], "effective": true, "page": "item", "success": false}'
    turn = turn_of(turn_row(info=told) | {"chain_start": True}, context=True)
    assert turn["info"] == {"actions": ["click[buy now]"], "page": "item"}
    assert turn["window"] is True
    assert turn["context"] == [1, 2, 3]


def test_a_turn_of_an_environment_that_tells_nothing_has_no_entry_for_it() -> None:
    turn = turn_of(turn_row(info='{"effective": true, "success": false}') | {"chain_start": False})
    assert "info" not in turn
    assert "window" not in turn

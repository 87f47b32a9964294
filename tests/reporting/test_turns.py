"""What the page of trajectories holds of one turn."""

from __future__ import annotations

import pytest
from builders import turn_row

from starpo.reporting.trajectories import board_rows, turn_of


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


@pytest.mark.parametrize(
    ("environment", "text", "rows"),
    [
        ("sokoban", "#####\n#P_O#\n#_X√#\n#####\nA room.", [0, 4]),
        ("frozen_lake", "P_\nOG\nPlayer (0,0). Goal (1,1).", [0, 2]),
        ("nobody_knows_it", "Turn 3\n\n# # #\n# P #", [2, 2]),
        ("bandit", "Arms: Clay, Stone\nPick one, please", None),
        ("frozen_lake", "P_G", None),
        ("webshop", "tea\nnut", None),
        ("knowing_environments:Knowing", "at 3\n..P\n.\nof 5", [1, 2]),
    ],
)
def test_a_board_is_what_the_environment_says_or_lines_of_symbols_of_one_length(
    environment: str, text: str, rows: list[int] | None
) -> None:
    assert board_rows(environment, text) == rows
    turn = turn_of(turn_row(environment=environment, observation=text) | {"chain_start": False})
    assert turn.get("board") == rows
    assert "next_board" not in turn

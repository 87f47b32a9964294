"""What re-scoring changed, on the terminal."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from starpo.app.terminal.rescoring_table import rescoring_table


def row(iteration: int, trajectories: int, before: float, kept: int = 4) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "trajectories": trajectories,
        "return_before": before,
        "return_after": before - 1,
        "returns_changed": 0.25,
        "groups_kept_before": kept,
        "groups_kept_after": 3,
        "groups_kept_in_both": 2,
    }


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    console = Console(file=StringIO(), width=120)
    console.print(rescoring_table(rows))
    return [line.split() for line in console.file.getvalue().splitlines()[2:]]  # type: ignore[attr-defined]


def test_all_iterations_together_weigh_trajectories_equally() -> None:
    shown = lines([row(0, 30, 0.0), row(1, 10, 0.4), row(2, 0, 0.0, kept=0)])
    assert shown[0] == ["0", "0.000", "-1.000", "25%", "4", "3", "2"]
    assert shown[2][1:] == ["-"] * 6, "a stopped iteration has no mean"
    assert shown[3] == ["all", "0.100", "-0.900", "25%", "8", "9", "6"]


def test_a_long_run_is_thinned_out_but_keeps_its_ends() -> None:
    shown = [line[0] for line in lines([row(i, 8, 0.0) for i in range(200)])]
    assert len(shown) == 21 and shown[0] == "0" and shown[-2:] == ["199", "all"]

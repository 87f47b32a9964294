"""The two tables at the end of an evaluation."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from starpo.app.terminal.evaluation_table import evaluation_table, failure_table

SLIPPERY: dict[str, Any] = {
    "suite": "lake",
    "temperature": 0.5,
    "prompts": 256,
    "success": 0.4,
    "success_low": 0.342,
    "success_high": 0.461,
    "floor_success": 0.212,
    "optimum_success": 0.477,
    "success_of_optimum": 0.839,
    "success_of_optimum_low": 0.717,
    "success_of_optimum_high": 0.966,
    "return": 0.4,
    "return_normalised": 0.709,
    "return_normalised_low": 0.49,
    "return_normalised_high": 0.94,
    "luck_method": "exact",
    "luck_failed_share": 0.31,
    "failures.hole_by_slip": 0.35,
    "failures.turn_limit": 0.25,
    "failures.loop": 0.0,
}
OWN: dict[str, Any] = {
    "suite": "number_line",
    "temperature": 1.0,
    "prompts": 64,
    "success": 0.1,
    "success_low": 0.05,
    "success_high": 0.2,
    "floor_success": 0.12,
    "return": 0.1,
    "luck_method": "none",
    "failures.format": 0.9,
}


def lines(table: Table) -> list[str]:
    console = Console(file=StringIO(), width=220, no_color=True)
    console.print(table)
    return console.file.getvalue().splitlines()


def test_a_row_holds_success_and_return_between_both_ends() -> None:
    title, header, lake, own = lines(evaluation_table([SLIPPERY, OWN], "run@0050"))
    assert "run@0050" in title
    assert header.split()[:3] == ["suite", "T", "n"]
    for shown in (
        "0.400 [0.342, 0.461]",
        "0.212",
        "0.477",
        "0.839 [0.717, 0.966]",
        "0.709 [0.490, 0.940]",
        "0.310",
    ):
        assert shown in lake
    assert own.split().count("-") == 3, "no optimum, share of it or normalised return without a solver"
    assert own.rstrip().endswith("no luck")


def test_labels_that_never_occur_have_no_column() -> None:
    *_, header, lake, own = lines(failure_table([SLIPPERY, OWN]))
    assert "hole by slip" in header
    assert "format" in header
    assert "loop" not in header
    assert lake.split() == ["lake", "0.5", "0.350", "0.250", "-"]
    assert own.split() == ["number_line", "1", "-", "-", "0.900"]

"""What an evaluation found, as two tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def evaluation_table(summaries: Sequence[Mapping[str, Any]], policy: str) -> Table:
    """Success and return of one policy between random play and the optimum: a row per suite and temperature.

    Args:
        summaries: of its evaluations; a dash stands for what an environment has no solver or no random play for.
        policy: its name, for the title.
    """
    table = Table(title=f"Evaluation of {policy}: 95 % intervals in brackets", box=None, pad_edge=False)
    table.add_column("suite", no_wrap=True)
    for name in ("T", "n", "success", "floor", "optimum", "of optimum", "return", "normalised", "lucky wins"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in summaries:
        above = one["success_low"] > one.get("floor_success", 0.0) if "success_low" in one else False
        table.add_row(
            str(one["suite"]),
            f"{one['temperature']:g}",
            str(one["prompts"]),
            _with_interval(one, "success"),
            _number(one, "floor_success"),
            _number(one, "optimum_success"),
            _with_interval(one, "success_of_optimum"),
            _number(one, "return"),
            _with_interval(one, "return_normalised"),
            "no luck" if one["luck_method"] == "none" else _number(one, "luck_failed_share"),
            style=None if above else "yellow",
        )
    return table


def failure_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    """Share of trajectories by label: a row per suite and temperature, a column per label that occurs."""
    shown = [
        name
        for name in dict.fromkeys(key for one in summaries for key in one if key.startswith("failures."))
        if any(one.get(name, 0.0) > 0 for one in summaries)
    ]
    table = Table(title="Failures, share of trajectories", box=None, pad_edge=False)
    table.add_column("suite", no_wrap=True)
    table.add_column("T", justify="right", no_wrap=True)
    for name in shown:
        table.add_column(name.removeprefix("failures.").replace("_", " "), justify="right")
    for one in summaries:
        table.add_row(str(one["suite"]), f"{one['temperature']:g}", *(_number(one, name) for name in shown))
    return table


def _number(summary: Mapping[str, Any], name: str) -> str:
    return f"{summary[name]:.3f}" if name in summary else "-"


def _with_interval(summary: Mapping[str, Any], name: str) -> str:
    if name not in summary or f"{name}_low" not in summary:
        return _number(summary, name)
    return f"{summary[name]:.3f} [{summary[f'{name}_low']:.3f}, {summary[f'{name}_high']:.3f}]"

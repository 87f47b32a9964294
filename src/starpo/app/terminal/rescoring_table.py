"""What re-scoring changed, as a table for the terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

_ROWS = 20
"""Iterations shown, evenly spaced where there are more; the file holds all."""


def rescoring_table(rows: list[dict[str, Any]]) -> Table:
    """One line per iteration and one for all of them; ``rows`` are results of ``compare_scores``."""
    table = Table(title="Before and after re-scoring", box=None, pad_edge=False)
    for name in ("iteration", "return", "", "changed", "groups kept", "", "in both"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).round().astype(int))
    for position in shown:
        table.add_row(str(rows[position]["iteration"]), *_entries([rows[position]]))
    if len(rows) > 1:
        table.add_row("all", *_entries(rows))
    return table


def _entries(rows: list[dict[str, Any]]) -> list[str]:
    """Means weighted by trajectories; sums of groups."""
    weights = [row["trajectories"] for row in rows]
    if not any(weights):  # the run had stopped
        return ["-"] * 6
    before, after, changed = (
        float(np.average([row[name] for row in rows], weights=weights))
        for name in ("return_before", "return_after", "returns_changed")
    )
    kept = [sum(row[f"groups_kept_{name}"] for row in rows) for name in ("before", "after", "in_both")]
    return [f"{before:.3f}", f"{after:.3f}", f"{changed:.0%}", *(str(number) for number in kept)]

"""One line per iteration, and one table at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS: dict[str, tuple[str, str]] = {
    "success": ("success", ".3f"),
    "return": ("return", ".3f"),
    "return_std": ("reward std", ".3f"),
    "entropy": ("entropy", ".3f"),
    "gradient_norm": ("grad", ".3g"),
    "tokens_per_second": ("tok/s", ",.0f"),
}
"""Metric of an iteration -> (label, format). A metric that an iteration lacks is left out of its line."""

_STATUS_STYLE = {"trained": "green", "skipped": "yellow", "rolled_back": "yellow", "stopped": "red"}


class IterationProgress:
    """Prints a line per iteration: in colour on a terminal, plain otherwise.

    Example line: ``12/200 trained  success 0.312  return 1.204  ...  left 1 h 02 min``.
    """

    def __init__(
        self,
        total: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock.

        Args:
            total: iterations of the run.
            console: where to print; None: standard output.
            clock: seconds, for the time left.
        """
        self._total = total
        self._console = console or Console()
        self._clock = clock
        self._start = clock()
        self._reported = 0
        self._stopped = False

    def begin(self) -> None:
        """Start the clock again: what came before the first iteration says nothing about the time left."""
        if not self._reported:
            self._start = self._clock()

    def report(self, metrics: dict[str, Any]) -> None:
        """Print the line of a finished iteration; of those after a stop, which do nothing, only the first.

        Args:
            metrics: ``iteration``, ``status`` and the keys of ``COLUMNS``.
        """
        self._reported += 1
        number = int(metrics["iteration"]) + 1
        status = str(metrics.get("status", ""))
        if status == "stopped" and self._stopped:
            return
        self._stopped = status == "stopped"
        parts = [f"{number:>{len(str(self._total))}}/{self._total} {status}".rstrip()]
        for name, (label, form) in COLUMNS.items():
            value = metrics.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                parts.append(f"{label} {value:{form}}")
        left = self._total - number
        if left > 0 and status != "stopped":
            # This process's own iterations only: a resumed run did not wait for the earlier ones.
            parts.append(f"left {duration((self._clock() - self._start) / self._reported * left)}")
        style = _STATUS_STYLE.get(status, "") if self._console.is_terminal and status != "trained" else None
        self._console.print("  ".join(parts), style=style, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """``3725`` to ``1 h 02 min``, ``125`` to ``2 min 05 s``, ``9.4`` to ``9 s``."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"


def before_after_table(comparisons: list[dict[str, Any]], between: Sequence[str] | None = None) -> Table:
    """First against last policy: a row per suite and temperature, for the first 256 prompts and for all.

    Args:
        comparisons: results of ``compare``.
        between: names of the policies before and after, where they are not one run's first and last.
    """
    title = (
        f"Success of {between[0]} (before) and {between[1]} (after)"
        if between
        else "Success before and after"
    )
    table = Table(title=title, box=None, pad_edge=False)
    table.add_column("suite", no_wrap=True)
    for name in ("T", "n", "before", "after", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    for one in comparisons:
        sizes = ["_256", ""] if one["prompts"] > one["prompts_256"] else [""]
        for suffix in sizes:
            low, high = (one.get(f"success_difference_{end}{suffix}", math.nan) for end in ("low", "high"))
            style = "green" if low > 0 else "red" if high < 0 else None
            table.add_row(
                str(one["suite"]),
                f"{one['temperature']:g}",
                str(one[f"prompts{suffix}"]),
                f"{one[f'success_before{suffix}']:.3f}",
                f"{one[f'success_after{suffix}']:.3f}",
                f"{one[f'success_difference{suffix}']:+.3f}",
                f"{low:+.3f} to {high:+.3f}",
                style=style,
            )
    return table

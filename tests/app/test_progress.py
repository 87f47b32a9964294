"""Progress lines and the table at the end."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from starpo.app.terminal.progress import IterationProgress, before_after_table, duration


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def metrics(iteration: int, **changes: Any) -> dict[str, Any]:
    base = {
        "iteration": iteration,
        "status": "trained",
        "success": 0.25,
        "return": -0.5,
        "return_std": 0.125,
        "entropy": 1.5,
        "gradient_norm": 0.0625,
        "tokens_per_second": 2500.0,
    }
    return base | changes


def plain(total: int, clock: Clock) -> tuple[IterationProgress, io.StringIO]:
    out = io.StringIO()
    return IterationProgress(total, Console(file=out, width=40), clock), out


def test_one_plain_line_per_iteration_whatever_the_width() -> None:
    clock = Clock()
    progress, out = plain(200, clock)
    for iteration in range(2):
        clock.now += 20
        progress.report(metrics(iteration))
    assert out.getvalue().splitlines() == [
        "  1/200 trained  success 0.250  return -0.500  reward std 0.125  entropy 1.500  grad 0.0625  "
        "tok/s 2,500  left 1 h 06 min",
        "  2/200 trained  success 0.250  return -0.500  reward std 0.125  entropy 1.500  grad 0.0625  "
        "tok/s 2,500  left 1 h 06 min",
    ]


def test_the_time_left_counts_only_this_process_after_a_resume() -> None:
    clock = Clock()
    progress, out = plain(100, clock)
    clock.now += 3
    progress.report(metrics(89))
    assert out.getvalue().rstrip().endswith("left 30 s")


def test_what_is_missing_or_not_finite_is_left_out_and_the_last_line_has_no_time_left() -> None:
    progress, out = plain(3, Clock())
    progress.report({"iteration": 2, "status": "skipped", "success": 0.0, "entropy": float("nan")})
    assert out.getvalue() == "3/3 skipped  success 0.000\n"


def test_a_stopped_run_has_no_time_left() -> None:
    progress, out = plain(9, Clock())
    progress.report({"iteration": 2, "status": "stopped"})
    assert out.getvalue() == "3/9 stopped\n"


def test_colours_only_on_a_terminal() -> None:
    out = io.StringIO()
    IterationProgress(9, Console(file=out, force_terminal=True, color_system="standard")).report(
        {"iteration": 0, "status": "skipped"}
    )
    assert "\x1b[" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (3725, "1 h 02 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def comparison(prompts: int, difference: float, width: float) -> dict[str, Any]:
    row: dict[str, Any] = {"suite": "lake", "temperature": 0.5}
    for suffix, size in (("", prompts), ("_256", min(prompts, 256))):
        row |= {
            f"prompts{suffix}": size,
            f"success_before{suffix}": 0.2,
            f"success_after{suffix}": 0.2 + difference,
            f"success_difference{suffix}": difference,
            f"success_difference_low{suffix}": difference - width,
            f"success_difference_high{suffix}": difference + width,
        }
    return row


def test_the_table_has_a_row_for_the_first_256_prompts_and_one_for_all() -> None:
    table = before_after_table([comparison(1024, 0.3, 0.05), comparison(64, -0.01, 0.1)])
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    lines = [line.split() for line in out.getvalue().splitlines()[2:]]
    assert lines == [
        ["lake", "0.5", "256", "0.200", "0.500", "+0.300", "+0.250", "to", "+0.350"],
        ["lake", "0.5", "1024", "0.200", "0.500", "+0.300", "+0.250", "to", "+0.350"],
        ["lake", "0.5", "64", "0.200", "0.190", "-0.010", "-0.110", "to", "+0.090"],
    ]
    assert [row.style for row in table.rows] == ["green", "green", None]


def test_an_interval_that_one_prompt_does_not_allow_is_shown_as_such() -> None:
    row = comparison(1, 0.0, 1.0)
    del row["success_difference_low"], row["success_difference_high"]
    out = io.StringIO()
    Console(file=out, width=100).print(before_after_table([row]))
    assert "nan" in out.getvalue()

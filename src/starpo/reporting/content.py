"""Everything a report says, as one JSON-able object, before it is drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starpo.config.monitor import MonitorConfig
from starpo.config.report import ReportConfig
from starpo.reporting.curves import evaluation_charts, training_charts
from starpo.reporting.families import (
    Family,
    choose_runs,
    environment_of,
    families_of,
    seed_of,
    without_repeats,
)
from starpo.reporting.numbers import plain_rows
from starpo.reporting.side_by_side import side_by_side
from starpo.reporting.summary import collapse, cost, family_differences, final_rows, suite_rows
from starpo.reporting.trajectories import sample_run
from starpo.store.checksums import lost_files
from starpo.store.run_tables import Run


def gather(root: Path, report: ReportConfig, monitor: MonitorConfig, source: str | None) -> dict[str, Any]:
    """What the page shows.

    Args:
        root: the project's folder.
        report: which runs and how much of them.
        monitor: thresholds of the Echo Trap monitor, which is replayed over the stored metrics of all runs.
        source: ``run.source``, where ``report.runs`` is null.

    Returns:
        ``summary``, small, and ``trajectories``, which may be large.
    """
    runs, repeated = without_repeats(choose_runs(root, report.runs, source))
    families = families_of(runs)
    runs = [run for family in families for run in family.runs]
    metrics = {run.name: plain_rows(run.metrics()) for run in runs}
    summaries = {run.name: plain_rows(run.evaluation_summary()) for run in runs}
    final = final_rows(families)
    sides = [side_by_side(run, summaries[run.name], prompts=report.prompts) for run in runs]
    return {
        "summary": {
            "name": report.name,
            "families": [_family(family) for family in families],
            "runs": [_about(run) for run in runs],
            "repeated": repeated,
            "charts": evaluation_charts(families, summaries) + training_charts(families, metrics),
            "final": final,
            "differences": family_differences(families, final),
            "suites": suite_rows(root, runs),
            "collapse": [collapse(run, metrics[run.name], monitor) for run in runs],
            "costs": [cost(run, metrics[run.name], summaries[run.name]) for run in runs],
        },
        "trajectories": {
            "runs": [sample_run(run, iterations=report.iterations, groups=report.groups) for run in runs],
            "sides": [side for side in sides if side is not None],
        },
    }


def _family(family: Family) -> dict[str, Any]:
    return {
        "label": family.label,
        "pipeline": family.pipeline,
        "environment": family.environment,
        "runs": [run.name for run in family.runs],
    }


def _about(run: Run) -> dict[str, Any]:
    created = datetime.fromtimestamp(run.record.created / 1000, UTC)
    return {
        "run": run.name,
        "pipeline": run.record.pipeline,
        "environment": environment_of(run),
        "seed": seed_of(run),
        "state": run.state,
        "iterations": len(run.iterations),
        "lost": lost_files(run.paths),
        "created": f"{created:%Y-%m-%d %H:%M} UTC",
        "commit": (run.record.git_commit or "")[:12],
    }

"""Which runs a report is about, and which of them are seeds of one experiment."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from starpo.errors import UserError
from starpo.store.run_tables import Run
from starpo.store.runs import RunRecord, list_runs, open_run, run_fingerprint

TRAINING = "train_"
"""Pipelines that train begin with it."""


@dataclass(frozen=True)
class Family:
    """Runs that differ in their seed alone; a band in the curves."""

    label: str
    """Pipeline and, where that does not tell it from the others, what its runs' names have in common."""
    pipeline: str
    environment: str
    runs: tuple[Run, ...]
    """In the order of their seeds."""


def choose_runs(root: Path, patterns: Sequence[str] | None, source: str | None) -> list[Run]:
    """The runs to report, in the order of their names.

    Args:
        root: the project's folder.
        patterns: names or glob patterns; None: the family of ``source`` or of the newest training run.
        source: name of a run, ``@ITERATION`` behind it is ignored; None: the newest.

    Raises:
        UserError: a pattern matches no training run with metrics, or there is none at all.
    """
    records = [each for each in list_runs(root) if each.pipeline.startswith(TRAINING)]
    runs = {record.name: open_run(record.name, root) for record in records}
    runs = {name: run for name, run in runs.items() if run.iterations}
    known = ", ".join(sorted(runs)) or "none yet"
    if patterns is None:
        wanted = source.partition("@")[0] if source else next(reversed(runs), None)
        if wanted not in runs:
            what = (
                f"run.source = {source!r} is no training run with a finished iteration"
                if source
                else "no run"
            )
            raise UserError(f"nothing to report: {what}; there are: {known}. Train one, or set report.runs.")
        key = _experiment(runs[wanted].record)
        return [runs[name] for name in sorted(runs) if _experiment(runs[name].record) == key]
    chosen = []
    for pattern in patterns:
        found = [name for name in runs if fnmatchcase(name, pattern)]
        if not found:
            raise UserError(
                f"report.runs: {pattern!r} matches no training run with a finished iteration; there are: {known}"
            )
        chosen += found
    return [runs[name] for name in sorted(set(chosen))]


def families_of(runs: Sequence[Run]) -> list[Family]:
    """Runs by experiment, in the order of pipeline, environment and name."""
    gathered: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        gathered.setdefault(_experiment(run.record), []).append(run)
    pairs = [(pipeline, environment) for pipeline, environment, _ in gathered]
    families = []
    for (pipeline, environment, _), members in gathered.items():
        members.sort(key=lambda run: (seed_of(run), run.name))
        alone = pairs.count((pipeline, environment)) == 1
        stem = re.sub(r"-?seed\d+$", "", members[0].name)
        label = pipeline.removeprefix(TRAINING)
        families.append(
            Family(label if alone else f"{label} ({stem})", pipeline, environment, tuple(members))
        )
    return sorted(families, key=lambda family: (family.environment, family.pipeline, family.label))


def without_repeats(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs without those that another one repeats, and the names of these.

    Two runs of one experiment with one seed are the same sample; both in a band would make it too narrow. The one
    with more iterations stays.
    """
    kept: dict[tuple[tuple[str, str, str], int], Run] = {}
    for run in sorted(runs, key=lambda run: (-len(run.iterations), run.name)):
        kept.setdefault((_experiment(run.record), seed_of(run)), run)
    names = {run.name for run in kept.values()}
    return [run for run in runs if run.name in names], sorted(
        run.name for run in runs if run.name not in names
    )


def seed_of(run: Run) -> int:
    """``run.seed``."""
    return int(run.parameters["run"]["seed"])


def environment_of(run: Run) -> str:
    """Name of the training task."""
    return str(run.parameters["environment"]["name"])


def _experiment(record: RunRecord) -> tuple[str, str, str]:
    """Equal for runs that differ in seed, name and study alone."""
    parameters: dict[str, Any] = copy.deepcopy(record.parameters)
    for key in ("seed", "study", "name"):
        parameters.get("run", {}).pop(key, None)
    environment = str(parameters["environment"]["name"])
    return record.pipeline, environment, run_fingerprint(parameters)

"""What one cell of a study came to, small enough for Git: metrics, outcomes by prompt and curves."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starpo.config.monitor import MonitorConfig
from starpo.errors import UserError
from starpo.evaluation.intervals import proportion_interval
from starpo.evaluation.outcomes import Outcomes
from starpo.monitor.echo_trap import RUN, SUCCESS, lead_times, watch
from starpo.store.layout import Layer, suite_of
from starpo.store.machine import Machine
from starpo.store.reading import read_json, read_table
from starpo.store.run_tables import Run

CELLS, OUTCOMES, CURVES = "cells", "outcomes", "curves"
"""Folders of a study; each holds one file per cell, named after its run."""

CURVE = ("success", "return", "return_std", "entropy", "gradient_norm", "thought_distinct_share", "approx_kl")
"""Columns of a curve after ``iteration``."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rate(_Record):
    """Success on one suite at one temperature."""

    before: float
    """Of the first policy."""
    after: float
    """Of the last policy."""
    low: float
    high: float
    """95 % interval of ``after``, prompts as the unit."""


class Cell(_Record):
    """One cell; no clock time is in it, so equal runs give equal files."""

    task: str
    algorithm: str
    """Training pipeline without ``train_``."""
    seed: int
    iterations: int
    """Iterations done."""
    success: dict[str, Rate]
    """By suite and temperature, such as ``test-t1_0``."""
    best: float | None
    """Highest success of the periodic evaluation."""
    best_iteration: int | None
    """Iterations behind the policy that reached it first."""
    alarm: int | None
    """Iteration at which the Echo Trap monitor gave the alarm for the run; null: never."""
    success_fell: int | None
    """Iteration of the monitor's first warning of success; null: never."""
    lead_times: dict[str, int | None]
    """Iterations by which an indicator's first warning came before that of success; null: it never warned. Empty
    where success never fell."""
    rollout_tokens: int
    """Sampled tokens."""
    trained_tokens: int
    """Tokens in updates, all epochs."""


class CellOutcomes(_Record):
    """Which prompts the first and the last policy solved, by suite and temperature."""

    before: dict[str, Outcomes] = Field(min_length=1)
    after: dict[str, Outcomes] = Field(min_length=1)
    machines: tuple[Machine, ...] = ()
    """What the run was computed on, in order of use; empty: not recorded."""

    def beside(self, old: CellOutcomes) -> str:
        """What became of the cell as it was before, ``old``, and what may be the reason, for people."""
        if (self.before, self.after) == (old.before, old.after):
            return "every prompt ends as before"
        if not (old.machines and self.machines):
            return "other outcomes than before, of which no machine is recorded"
        if differences := old.machines[-1].differences(self.machines[-1]):
            found = ", ".join(differences)
            return f"other outcomes than before, on another machine ({found}): rounding may be the reason"
        return "other outcomes than before on the same machine: code or parameters have changed"


def summarise(run: Run, *, task: str, algorithm: str, seed: int) -> tuple[Cell, CellOutcomes]:
    """From a run's stored metrics and evaluations, played while it trained.

    Raises:
        UserError: the run is not finished, or is of another algorithm or seed than the cell.
    """
    made_by, own_seed = run.record.pipeline, run.parameters["run"]["seed"]
    if (made_by, own_seed) != (f"train_{algorithm}", seed):
        raise UserError(
            f"run {run.name!r} is {made_by} with seed {own_seed}, the cell train_{algorithm} with seed {seed}; "
            f"remove it: starpo runs rm {run.name}"
        )
    if run.state not in {"finished", "stopped"}:
        raise UserError(f"run {run.name!r} is {run.state}, not finished; train it first: dvc repro")
    rows = [_plain(row) for row in run.metrics().to_dict("records")]
    monitor = MonitorConfig.model_validate(run.parameters["monitor"])
    state = watch(rows, monitor)
    alarms = [e.iteration for e in state.events if e.indicator == RUN and e.after == "alarm"]
    falls = [e.iteration for e in state.events if e.indicator == SUCCESS and e.before == "quiet"]
    outcomes = _outcomes(run)
    best = _best(run)
    cell = Cell(
        task=task,
        algorithm=algorithm,
        seed=seed,
        iterations=len(rows),
        success={name: _rate(outcomes.before[name], after) for name, after in outcomes.after.items()},
        best=best[0] if best else None,
        best_iteration=best[1] if best else None,
        alarm=alarms[0] if alarms else None,
        success_fell=falls[0] if falls else None,
        lead_times=lead_times(state),
        rollout_tokens=int(sum(row.get("rollout_tokens", 0) for row in rows)),
        trained_tokens=int(sum(row.get("trained_tokens", 0) for row in rows)),
    )
    return cell, outcomes


def write_cell(study: Path, run: Run, *, task: str, algorithm: str, seed: int) -> str:
    """The three files of a cell in the folder ``study``; returns what was done, for people."""
    cell, outcomes = summarise(run, task=task, algorithm=algorithm, seed=seed)
    said, old = f"wrote {study / CELLS / run.name}.json", study / OUTCOMES / f"{run.name}.json"
    if old.exists():
        with contextlib.suppress(ValidationError, UserError):  # a damaged one is written anew
            said += f": {outcomes.beside(CellOutcomes.model_validate(read_json(old)))}"
    for folder, value in ((CELLS, cell), (OUTCOMES, outcomes)):
        path = study / folder / f"{run.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    path = study / CURVES / f"{run.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("iteration", *CURVE))
        for row in run.metrics().to_dict("records"):
            plain = _plain(row)
            writer.writerow((plain["iteration"], *(_short(plain.get(name)) for name in CURVE)))
    return said


def read_cells(study: Path) -> dict[str, tuple[Cell, CellOutcomes]]:
    """All cells of a study by the names of their runs.

    Raises:
        UserError: there is none, or a file is not what ``write_cell`` wrote.
    """
    found = {}
    for path in sorted((study / CELLS).glob("*.json")):
        other = study / OUTCOMES / path.name
        try:
            found[path.stem] = (
                Cell.model_validate(read_json(path)),
                CellOutcomes.model_validate(read_json(other)),
            )
        except ValidationError as error:
            reason = str(error).replace("\n", " ")
            raise UserError(f"{path} or {other} is no cell ({reason}); make it again: dvc repro") from None
    if not found:
        raise UserError(f"{study / CELLS} holds no cell yet; train them: dvc repro")
    return found


def _outcomes(run: Run) -> CellOutcomes:
    """Of the suites in ``evaluation.final``, at their first and last step."""
    steps: dict[str, list[Path]] = {}
    for (folder, _), path in run.paths.evaluations("turns").items():
        if suite_of(folder) in run.parameters["evaluation"]["final"]:
            steps.setdefault(folder, []).append(path)
    both = {folder: paths for folder, paths in steps.items() if len(paths) > 1}
    before = {folder: Outcomes.of(read_table(paths[0], "turns")) for folder, paths in both.items()}
    after = {folder: Outcomes.of(read_table(paths[-1], "turns")) for folder, paths in both.items()}
    if not after:
        layer = run.paths.folder(Layer.EVALUATION)
        raise UserError(f"{layer} holds no suite of evaluation.final at two policies; train the cell again")
    return CellOutcomes(before=before, after=after, machines=run.record.machines)


def _rate(before: Outcomes, after: Outcomes) -> Rate:
    interval = proportion_interval(after.bits(), range(after.prompts))
    return Rate(before=before.success, after=after.success, low=interval.low, high=interval.high)


def _best(run: Run) -> tuple[float, int] | None:
    """(success, iterations) of the best periodic evaluation, the earliest of equals."""
    evaluation = run.parameters["evaluation"]
    table = run.evaluation_summary()
    periodic = table["suite"].map(suite_of).isin(evaluation["periodic"])
    rows = table[periodic].to_dict("records")
    if not rows:
        return None
    top = max(rows, key=lambda row: (row["success"], -int(row["iteration"])))
    return float(top["success"]), int(top["iteration"])


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """Without the NaN that a table holds where an iteration had no such metric."""
    return {str(k): v for k, v in row.items() if not (isinstance(v, float) and math.isnan(v))}


def _short(value: Any) -> str:
    return "" if value is None else f"{float(value):.6g}"

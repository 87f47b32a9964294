"""What a cell is summarised to, from files as a training run leaves them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from builders import machine, turn_row, turns_table

from starpo.errors import UserError
from starpo.store.machine import Machine
from starpo.store.run_tables import Run
from starpo.store.runs import new_record, write_record
from starpo.studies.cells import CellOutcomes, read_cells, summarise, write_cell

BASE = Path(__file__).resolve().parents[2] / "conf" / "base"
MONITOR = yaml.safe_load((BASE / "parameters_monitor.yml").read_text())["monitor"]
CELL: dict[str, Any] = {"task": "lake", "algorithm": "starpo_s", "seed": 2}


def run_of(
    root: Path, curve: list[float], *, state: str = "finished", solved: tuple[int, int] = (1, 3)
) -> Run:
    """Training success ``curve``; ``solved`` of four test prompts by the first and the last policy."""
    name = "study-lake-starpo_s-seed2"
    parameters = {
        "run": {"seed": 2},
        "rollout": {"groups": 1000},
        "monitor": MONITOR,
        "evaluation": {"final": ["test"], "periodic": ["validation"]},
    }
    record = new_record(name, "train_starpo_s", parameters).model_copy(update={"state": state})
    write_record(root, record)
    updates = root / "data" / "05_updates" / name
    updates.mkdir(parents=True)
    for iteration, success in enumerate(curve):
        row = {"iteration": iteration, "success": success, "groups": 1000, "rollout_tokens": 10.0}
        row |= {"return_std": 0.5, "trained_tokens": 3.0, "timestamp": iteration}
        (updates / f"iter_{iteration:04d}.json").write_text(json.dumps(row))
    evaluation = root / "data" / "07_evaluation" / name
    for step, won in zip((0, len(curve)), solved, strict=True):
        _evaluate(evaluation / "test-t1_0", step, won)
    for step, rate in ((0, 0.2), (10, 0.6), (20, 0.6)):
        folder = evaluation / "validation-t0_5"
        folder.mkdir(exist_ok=True)
        (folder / f"step_{step:04d}.json").write_text(json.dumps({"success": rate, "iteration": step}))
    return Run(root, record)


def _evaluate(folder: Path, step: int, won: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        turn_row(group=group, member=0, turn=0, policy_step=step, success=group < won) for group in range(4)
    ]
    pq.write_table(turns_table(*rows), folder / f"step_{step:04d}.parquet")


def test_a_healthy_cell_has_rates_a_best_and_no_alarm(tmp_path: Path) -> None:
    cell, outcomes = summarise(run_of(tmp_path, [0.5] * 30), **CELL)
    rate = cell.success["test-t1_0"]
    assert (rate.before, rate.after) == (0.25, 0.75) and rate.low < 0.75 < rate.high
    assert (cell.best, cell.best_iteration) == (0.6, 10), "the earliest of equal ones"
    assert (cell.alarm, cell.success_fell, cell.lead_times) == (None, None, {})
    assert (cell.iterations, cell.rollout_tokens, cell.trained_tokens) == (30, 300, 90)
    assert outcomes.after["test-t1_0"].bits().tolist() == [True, True, True, False]


def test_a_collapse_is_dated_by_the_monitor(tmp_path: Path) -> None:
    cell, _ = summarise(run_of(tmp_path, [0.8] * 20 + [0.0] * 20), **CELL)
    assert cell.success_fell is not None and cell.alarm is not None
    assert 20 <= cell.success_fell <= cell.alarm < 30
    assert cell.lead_times["return_std"] is None, "it never warned"


def test_the_first_and_the_last_policy_are_told_by_number(tmp_path: Path) -> None:
    run = run_of(tmp_path, [0.5] * 20, solved=(1, 2))
    for step, won in ((10000, 4), (9999, 3)):
        _evaluate(tmp_path / "data/07_evaluation" / run.name / "test-t1_0", step, won)
    cell, _ = summarise(run, **CELL)
    assert (cell.success["test-t1_0"].before, cell.success["test-t1_0"].after) == (0.25, 1.0)


def test_a_cell_that_is_not_finished_or_of_another_run_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path, [0.5] * 3, state="killed")
    with pytest.raises(UserError, match="killed"):
        summarise(run, **CELL)
    with pytest.raises(UserError, match="train_starpo_ppo"):
        summarise(run, **CELL | {"algorithm": "starpo_ppo"})
    with pytest.raises(UserError, match="seed 1"):
        summarise(run, **CELL | {"seed": 1})


def test_a_cell_is_read_as_it_was_written_and_missing_metrics_stay_empty(tmp_path: Path) -> None:
    run, study = run_of(tmp_path, [0.5, 0.25]), tmp_path / "study"
    write_cell(study, run, **CELL)
    assert read_cells(study) == {run.name: summarise(run, **CELL)}
    with (study / "curves" / f"{run.name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["iteration"], row["success"], row["entropy"]) for row in rows] == [
        ("0", "0.5", ""),
        ("1", "0.25", ""),
    ]


def test_a_study_without_cells_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dvc repro"):
        read_cells(tmp_path)


def test_a_cell_made_again_says_what_became_of_it(tmp_path: Path) -> None:
    study, run = tmp_path / "study", run_of(tmp_path, [0.5] * 20)
    path = study / "outcomes" / f"{run.name}.json"
    here, elsewhere = machine(), machine(processor="Abacus 2")

    def again(now: Machine, **old: Any) -> str:
        if old:
            stored = CellOutcomes.model_validate_json(path.read_text())
            path.write_text(stored.model_copy(update=old).model_dump_json())
        made = Run(tmp_path, run.record.model_copy(update={"machines": (now,)}))
        return write_cell(study, made, **CELL)

    assert again(here).endswith(f"{run.name}.json")
    assert again(elsewhere).endswith(": every prompt ends as before")
    assert CellOutcomes.model_validate_json(path.read_text()).machines == (elsewhere,)
    others = CellOutcomes.model_validate_json(path.read_text()).before
    assert again(here, after=others, machines=(elsewhere,)).endswith(
        "on another machine (processor Abacus 2 → Abacus 1): rounding may be the reason"
    )
    assert again(here, after=others).endswith("on the same machine: code or parameters have changed")
    assert again(here, after=others, machines=()).endswith("of which no machine is recorded")
    path.write_text("{")
    assert again(here).endswith(f"{run.name}.json")

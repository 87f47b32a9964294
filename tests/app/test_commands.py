"""The commands of ``starpo``: what they print, their exit status, and what they do not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import machine
from click.testing import CliRunner, Result
from rich.console import Console

from starpo.app.commands import runs, scheduled_evaluation
from starpo.app.commands.main import main
from starpo.store.layout import RunPaths
from starpo.store.runs import new_record, read_record, write_record
from starpo.store.sources import STAGES

STARPO = str(Path(sys.executable).with_name("starpo"))


def parameters(iterations: int = 10) -> dict[str, Any]:
    return {
        "run": {"seed": 3, "iterations": iterations},
        "environment": {"name": "frozen_lake"},
        "learner": {"betas": [0.9, 0.999]},
    }


def save(root: Path, name: str = "lake", **fields: Any) -> None:
    record = new_record(name, "train_starpo_s", parameters())
    write_record(root, record.model_copy(update={"state": "finished"} | fields))


def put(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the run ``lake``: three iterations, two evaluated steps, 3 KiB of weights."""
    (tmp_path / "conf/base").mkdir(parents=True)
    save(tmp_path)
    put(tmp_path / "data/06_models/lake/policy_0000/manifest.json", {"weights": "0" * 3000})
    for iteration in range(3):
        put(tmp_path / f"data/05_updates/lake/iter_{iteration:04d}.json", {"iteration": iteration})
    for step in (0, 2):
        for suite in ("lake-t0_5", "lake-t1_0"):
            path = tmp_path / f"data/07_evaluation/lake/{suite}/step_{step:04d}.json"
            put(path, {"success": 0.25 + step / 10, "prompts": 4})
    return tmp_path


def invoke(root: Path, *arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, [*arguments, "--root", str(root)], input=answer)


def said(root: Path, *arguments: str) -> str:
    done = invoke(root, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def line_of(run: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(run))


def test_the_list_shows_each_run_with_its_last_success(root: Path) -> None:
    save(root, "gone", state="running", pid=2**22 + 1, process_start=None)
    listed = said(root, "runs", "list")
    for text in (
        "finished",
        "train_starpo_s",
        "frozen_lake",
        "3/10",
        "lake-t0_5 0.450, lake-t1_0 0.450 @2",
        "3.6 KiB",
    ):
        assert text in line_of("lake", listed)
    assert "interrupted" in line_of("gone", listed) and "0/10" in line_of("gone", listed)


def test_a_shortened_run_shows_apart_what_it_did_before(root: Path) -> None:
    record = read_record(root, "lake")
    write_record(root, record.model_copy(update={"parameters": parameters(iterations=2)}))
    lake = line_of("lake", said(root, "runs", "list"))
    assert "2/2 (+1)" in lake and "3/2" not in lake
    assert "2 of 2; 1 more from when run.iterations was higher" in said(root, "runs", "show", "lake")


@pytest.mark.parametrize("pipeline", sorted({*STAGES, "iteration"}))
def test_what_does_not_train_has_no_iterations_to_go(root: Path, pipeline: str) -> None:
    write_record(root, read_record(root, "lake").model_copy(update={"pipeline": pipeline}))
    lake = line_of("lake", said(root, "runs", "list"))
    assert "/10" not in lake and lake.split()[5] == "-"
    shown = said(root, "runs", "show", "lake")
    assert "none: this pipeline does not train" in shown and "of 10" not in shown


def test_showing_a_run_prints_results_and_parameters(root: Path) -> None:
    save(root, "lake", state="stopped", message="every group was filtered [5 times]")
    shown = said(root, "runs", "show", "lake")
    assert "stopped (every group was filtered [5 times])" in shown
    assert "0.450" in shown and "learner.betas" in shown and "[0.9, 0.999]" in shown


def test_showing_a_run_names_its_machines_in_order(root: Path) -> None:
    assert "not recorded" in said(root, "runs", "show", "lake")
    save(root, "lake", machines=(machine(), machine(processor="Abacus 2", gpu="H1")))
    shown = said(root, "runs", "show", "lake")
    assert "Abacus 1 (AVX2), 1 threads, Python 3.11.0, torch 2.0" in shown
    assert shown.index("Abacus 1") < shown.index("Abacus 2 (AVX2) with H1")


@pytest.mark.parametrize("name", ["../lake@0", "/tmp/lake", "..", "lake/policy_0000@0"])
@pytest.mark.parametrize(
    "command", [("play",), ("serve",), ("champion", "set"), ("champion", "check", "--candidate")]
)
def test_a_path_is_no_run(
    root: Path, command: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_evaluation, "read_champions", lambda _: {"lake": None})
    done = invoke(root, *command, name)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: run name ") and len(done.stderr.splitlines()) == 1


def test_an_empty_project_is_not_an_error(tmp_path: Path) -> None:
    assert "no runs in" in said(tmp_path, "runs", "list")


def test_a_broken_record_shows_in_the_list(root: Path) -> None:
    RunPaths(root, "lake").record.write_text("{")
    listed = said(root, "runs", "list")
    assert "unreadable" in listed and "run.json is corrupt" in listed


def test_removal_needs_yes_where_nobody_can_answer(root: Path) -> None:
    refused = invoke(root, "runs", "rm", "lake")
    assert refused.exit_code == 1 and "--yes" in refused.stderr
    assert RunPaths(root, "lake").record.exists()
    assert said(root, "runs", "rm", "lake", "--yes").startswith("removed lake;")
    assert not list(root.rglob("lake"))


@pytest.mark.parametrize(
    ("answer", "status"), [("n\n", 1), ("\n", 1), ("y\n", 0), ("", 130)], ids=["no", "enter", "yes", "ctrl-d"]
)
def test_removal_asks_on_a_terminal(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    monkeypatch.setattr(runs, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    done = invoke(root, "runs", "rm", "lake", answer=answer)
    assert done.exit_code == status and "Delete these folders (" in done.stdout
    assert RunPaths(root, "lake").record.exists() is (status != 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "show", "nope"),
        ("runs", "rm", "nope", "--yes"),
        ("runs", "plot", "lake", "nope"),
        ("play", "nope"),
        ("serve", "nope@3"),
        ("champion", "set", "nope@3"),
    ],
    ids=" ".join,
)
def test_a_run_that_is_not_there_is_one_message(root: Path, arguments: tuple[str, ...]) -> None:
    done = invoke(root, *arguments)
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("Error: there is no run 'nope' in ")
    assert len(done.stderr.splitlines()) == 1


def test_a_check_without_a_champion_says_how_to_name_one(root: Path) -> None:
    done = invoke(root, "champion", "check")
    assert done.exit_code == 1
    assert (
        done.stderr == "Error: champion.json names no champion; name one: starpo champion set RUN@ITERATION\n"
    )
    assert "no champion yet" in said(root, "champion", "show")


def test_a_champion_under_an_unknown_environment_is_refused_with_the_known_ones(root: Path) -> None:
    (root / "conf/smoke").mkdir(parents=True)
    done = invoke(root, "champion", "set", "lake@0", "--env=smok")
    assert done.exit_code == 1
    assert "--env=smok: there is no folder" in done.stderr and "known: smoke" in done.stderr


def test_every_champion_is_checked_and_one_drop_is_the_status(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []

    def check_one(_: Console, __: Path, name: str, candidate: object) -> bool:
        checked.append((name, candidate))
        return name != "lake"

    monkeypatch.setattr(scheduled_evaluation, "read_champions", lambda _: {"lake": None, "bandit": None})
    monkeypatch.setattr(scheduled_evaluation, "_check_one", check_one)
    assert invoke(root, "champion", "check").exit_code == scheduled_evaluation.DROPPED
    assert checked == [("lake", None), ("bandit", None)]
    assert invoke(root, "champion", "check", "bandit").exit_code == 0
    assert checked[2:] == [("bandit", None)]


def test_a_model_that_is_not_there_is_one_message() -> None:
    done = CliRunner().invoke(main, ["models", "check", "/nowhere/model"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ") and "/nowhere/model" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("runs",), ("run",), ("play", "--temperature=0"), ("play", "--prompt=-1"), ("serve", "--dtype=int8")],
    ids=" ".join,
)
def test_a_command_that_cannot_be_read_ends_with_status_2(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and "Usage: main" in done.stderr


def test_listing_runs_imports_neither_engine_nor_learner_nor_tracking(root: Path) -> None:
    command = [sys.executable, "-X", "importtime", STARPO, "runs", "list", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert line_of("lake", done.stdout)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert not imported & {"torch", "vllm", "mlflow", "transformers", "kedro", "pandas", "pyarrow"}


def test_a_mistake_ends_the_real_command_with_status_1(root: Path) -> None:
    done = subprocess.run(
        [STARPO, "runs", "show", "nope"], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: there is no run 'nope'") and "Traceback" not in done.stderr

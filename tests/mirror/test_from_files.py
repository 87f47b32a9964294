"""``starpo runs mirror``: what a live run shows in MLflow, written again from its files."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from projects import SOURCE, TRAINED, Command, Project
from stored_run import begin_run, copy_in_mlflow, rows, store_evaluation, store_iteration

from starpo.app.commands.main import main
from starpo.mirror.mlflow_internals import forget_stores
from starpo.store.layout import RunPaths
from starpo.store.runs import read_record, write_record

SECRET = "made-up-pass-word"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a finished training of two iterations and two evaluations, and no store."""
    (tmp_path / "conf/base").mkdir(parents=True)
    shutil.copy(SOURCE / "conf/base/mlflow.yml", tmp_path / "conf/base")
    record = begin_run(tmp_path)
    for iteration in (0, 1):
        store_iteration(RunPaths(tmp_path, "lake"), iteration)
    for step in (0, 2):
        store_evaluation(RunPaths(tmp_path, "lake"), step)
    write_record(tmp_path, record.model_copy(update={"state": "finished"}))
    return tmp_path


def mirror(root: Path, *arguments: str) -> str:
    """What the command prints, as in a process of its own."""
    forget_stores()
    done = CliRunner().invoke(main, ["runs", "mirror", *arguments, "--root", str(root)])
    assert done.exit_code == (1 if "Error" in done.output else 0), done.output
    return done.output


def copy_of(root: Path, name: str = "lake") -> dict:
    return copy_in_mlflow(root, read_record(root, name).mlflow_run_id)


def test_repeating_it_changes_nothing(root: Path) -> None:
    assert "lake: complete in MLflow" in mirror(root, "lake")
    first, run_id = copy_of(root), read_record(root, "lake").mlflow_run_id
    assert first["run"][1] == "FINISHED"
    assert ("tokens_per_second", 25.0, 1_700_000_000_001, 1) in first["rows"]
    assert len(first["traces"]) == 2 and len(first["data"]) == 1
    os.utime(RunPaths(root, "lake").evaluations("turns")["test-t0_5", 2])  # as a copy of the file would have
    mirror(root, "lake")
    assert copy_of(root) == first and read_record(root, "lake").mlflow_run_id == run_id


def test_a_deleted_database_and_a_deleted_mlflow_run_are_made_anew(root: Path) -> None:
    from mlflow import MlflowClient

    mirror(root, "lake")
    first, ids = copy_of(root), [read_record(root, "lake").mlflow_run_id]
    MlflowClient(f"sqlite:///{root.resolve()}/mlflow.db").delete_run(ids[0])
    mirror(root, "lake")
    ids.append(read_record(root, "lake").mlflow_run_id)
    assert copy_of(root) == first
    (root / "mlflow.db").unlink()
    mirror(root, "lake")
    ids.append(read_record(root, "lake").mlflow_run_id)
    assert copy_of(root) == first and len(set(ids)) == 3


def test_runs_of_a_study_and_stages_alone_are_nested_again(root: Path) -> None:
    from mlflow import MlflowClient

    for record in (
        begin_run(root, "cell", study="four"),
        begin_run(root, "evaluate-lake-0002", "evaluate"),
        begin_run(root, "named", "evaluate", source="lake@2"),
    ):
        write_record(root, record.model_copy(update={"state": "failed"}))
    assert mirror(root, "--all").count("complete in MLflow") == 4
    client = MlflowClient(f"sqlite:///{root.resolve()}/mlflow.db")

    def parent(name: str) -> str:
        run = client.get_run(read_record(root, name).mlflow_run_id)
        assert run.info.status == ("FINISHED" if name == "lake" else "FAILED")
        return run.data.tags["mlflow.parentRunId"]

    assert client.get_run(parent("cell")).info.run_name == "four"
    assert parent("evaluate-lake-0002") == parent("named") == read_record(root, "lake").mlflow_run_id


def test_faults_are_sentences(root: Path) -> None:
    begin_run(root, "goes-on")  # by this process
    assert "run 'goes-on' is running and writes what MLflow lacks by itself" in mirror(root, "goes-on")
    assert "there is no run 'pond'" in mirror(root, "pond")
    assert "name the runs, or say --all" in mirror(root)
    (root / "mlflow.db").write_bytes(b"no database" * 1000)
    assert "sqlite:///mlflow.db (mlflow_tracking_uri in conf/*/mlflow.yml): the file is damaged" in mirror(
        root, "lake"
    )
    (root / "mlflow.db").unlink()
    file = RunPaths(root, "lake").metrics()[1]
    whole = file.read_text()
    file.write_text(whole[:5])
    assert f"{file}: unreadable" in mirror(root, "lake")
    file.write_text(whole)
    assert "complete" in mirror(root, "lake")
    (root / "conf/local").mkdir()
    (root / "conf/local/mlflow.yml").write_text(
        "tracking: {disable_tracking: {pipelines: [train_starpo_s]}}\n"
    )
    assert "disable_tracking in conf/*/mlflow.yml names its pipeline train_starpo_s" in mirror(root, "lake")


def command(root: Path, *arguments: str) -> None:
    starpo = str(Path(sys.executable).with_name("starpo"))
    subprocess.run([starpo, *arguments], cwd=root, check=True, capture_output=True, timeout=400)


@pytest.mark.slow
def test_a_smoke_run_s_live_copy_and_that_from_its_files_are_equal(
    project: Project, smoke: Command, tmp_path: Path
) -> None:
    live = copy_in_mlflow(project.root, read_record(project.root, TRAINED).mlflow_run_id)
    assert {len(live["models"]), len(live["data"])} == {2, 3} and live["traces"] and live["artefacts"]
    again = tmp_path / "again"
    shutil.copytree(project.root / "data", again / "data")  # with the files' times
    shutil.copytree(project.root / "conf", again / "conf")
    for _ in range(2):
        command(again, "runs", "mirror", TRAINED)
        copied = copy_in_mlflow(again, read_record(again, TRAINED).mlflow_run_id)
        assert copied == live


@pytest.mark.slow
def test_a_run_whose_server_is_away_says_so_shows_no_password_and_is_written_later(
    project: Project, smoke: Command, tmp_path: Path
) -> None:
    other = Project(tmp_path / "other")
    shutil.copytree(project.root, other.root, ignore=shutil.ignore_patterns("mlflow.db*", "mlruns"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = other.root / "conf" / "smoke" / "mlflow.yml"
    settings.write_text(
        f"server: {{mlflow_tracking_uri: 'http://ann:{SECRET}@127.0.0.1:{port}'}}\n", encoding="utf-8"
    )
    done = other.run("--env=smoke", "--pipeline=evaluate", "--params", "run.name=looked-at")
    assert done.code == 0, done.text
    said = [line for line in done.text.splitlines() if "MLflow (" in line]
    assert f"MLflow (http://ann:***@127.0.0.1:{port}): nothing listens there." in said[0]
    assert said[-1].endswith("starpo runs mirror looked-at --env=smoke")
    assert "conf/local/credentials.yml" in done.text
    assert SECRET not in done.text
    holding = [
        path
        for path in (other.root / "data").rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert not holding
    settings.unlink()
    command(other.root, "runs", "mirror", "looked-at")
    evaluated = json.loads((RunPaths(other.root, "looked-at").overview).read_text())["evaluations"]
    run_id = read_record(other.root, "looked-at").mlflow_run_id
    assert len({key for key, *_ in rows(other.root, run_id) if key.endswith("/success")}) == len(evaluated)

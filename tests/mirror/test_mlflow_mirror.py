"""The mirror against a real SQLite store."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders import machine

from starpo.app.terminal.interrupts import sigterm_interrupts
from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig, parse_mlflow_config
from starpo.mirror.mirror import MlflowMirror
from starpo.mirror.store import open_store
from starpo.store.runs import RunRecord, new_record

PARAMETERS = {
    "environment": {"name": "frozen"},
    "run": {"seed": 1, "iterations": 2, "name": "lake"},
    "learner": {"betas": [0.9, 0.999], "note": "x" * 9000},
}
QUIET = MlflowConfig.model_validate({"tracking": {"system_metrics_seconds": None}})
"""Without system metrics, which come at times of their own."""
METRICS = {
    "iteration": 0,
    "policy_step": 0,
    "timestamp": 1_700_000_000_123,
    "status": "trained",
    "success": 0.5,
    "seconds_update": 2,
    "nothing": float("nan"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests: creating the tables takes seconds."""
    return tmp_path_factory.mktemp("project")


def client(root: Path):
    from mlflow import MlflowClient

    return MlflowClient(MlflowConfig().tracking_uri(root))


def record(name: str = "lake", **fields: Any) -> RunRecord:
    return new_record(name, "train_starpo_s", PARAMETERS, **fields)


def begun(
    root: Path, known: RunRecord | None = None, config: MlflowConfig = QUIET, *, live: bool = True
) -> MlflowMirror:
    return MlflowMirror(root, config, open_store(root, config), known or record(), live=live)


@pytest.fixture
def mirror(root: Path):
    mirror = begun(root, record(machines=(machine(),)))
    yield mirror
    mirror.close()


def rows(root: Path, run_id: str) -> list[tuple]:
    with sqlite3.connect(root / "mlflow.db") as database:
        query = (
            "SELECT key, value, timestamp, step FROM metrics WHERE run_uuid = ? ORDER BY key, step, timestamp"
        )
        return database.execute(query, (run_id,)).fetchall()


# --- runs


def test_a_run_holds_parameters_and_tags(root: Path, mirror: MlflowMirror) -> None:
    run = client(root).get_run(mirror.run_id)
    assert run.info.run_name == "lake" and run.info.status == "RUNNING"
    assert run.data.params["run.seed"] == "1" and run.data.params["learner.betas"] == "[0.9, 0.999]"
    assert len(run.data.params["learner.note"]) == 6000
    assert "run.iterations" not in run.data.params
    tags = run.data.tags
    assert (tags["run.iterations"], tags["starpo.run"], tags["starpo.environment"]) == ("2", "lake", "frozen")
    assert (tags["starpo.processor"], tags["starpo.capability"]) == ("Abacus 1", "AVX2")


def test_a_run_is_continued_under_its_id_and_may_be_extended(root: Path, mirror: MlflowMirror) -> None:
    run_id = mirror.run_id
    mirror.log_iteration(METRICS, 0)
    mirror.end("FAILED")
    assert client(root).get_run(run_id).info.status == "FAILED"
    longer = PARAMETERS | {"run": PARAMETERS["run"] | {"iterations": 9}}
    again = begun(root, new_record("lake", "train_starpo_s", longer, mlflow_run_id=run_id))
    assert again.run_id == run_id
    again.log_iteration(METRICS | {"iteration": 1, "timestamp": METRICS["timestamp"] + 5}, 1)
    run = client(root).get_run(run_id)
    assert run.info.status == "RUNNING" and run.data.tags["run.iterations"] == "9"
    again.end("FINISHED")
    assert client(root).get_run(run_id).info.status == "FINISHED"
    assert [row[2:] for row in rows(root, run_id) if row[0] == "success"] == [
        (1_700_000_000_123, 0),
        (1_700_000_000_128, 1),
    ]


def test_a_run_that_the_store_lost_is_started_anew(root: Path) -> None:
    mirror = begun(root, record(mlflow_run_id="0" * 32))
    mirror.end("FINISHED")
    assert mirror.run_id != "0" * 32
    assert client(root).get_run(mirror.run_id).info.status == "FINISHED"


def test_another_experiment_and_name_come_from_the_configuration(root: Path) -> None:
    config = parse_mlflow_config({"tracking": {"experiment": {"name": "study"}, "run": {"name": "cell-7"}}})
    mirror = begun(root, config=config)
    mirror.end("FINISHED")
    run = client(root).get_run(mirror.run_id)
    assert run.info.run_name == "cell-7"
    assert client(root).get_experiment(run.info.experiment_id).name == "study"


def test_close_ends_an_unfinished_run_as_killed_and_leaves_a_finished_one(
    root: Path, mirror: MlflowMirror
) -> None:
    run_id = mirror.run_id
    mirror.close()
    assert client(root).get_run(run_id).info.status == "KILLED"
    other = begun(root)
    other.end("FINISHED")
    other.close()
    assert client(root).get_run(other.run_id).info.status == "FINISHED"


def test_a_forked_process_leaves_its_parents_run_alone(
    root: Path, mirror: MlflowMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        mirror.close()
    assert client(root).get_run(mirror.run_id).info.status == "RUNNING"


# --- metrics


def test_a_replay_writes_the_identical_rows(root: Path, mirror: MlflowMirror) -> None:
    for _ in range(3):
        mirror.log_iteration(METRICS, 0)
    assert rows(root, mirror.run_id) == [
        ("seconds_update", 2.0, 1_700_000_000_123, 0),
        ("success", 0.5, 1_700_000_000_123, 0),
    ]
    again = begun(root, record(mlflow_run_id=mirror.run_id))
    again.log_iteration(METRICS, 0)
    assert len(rows(root, mirror.run_id)) == 2
    again.end("FINISHED")


def test_an_evaluation_brings_its_summary_and_its_table(
    root: Path, mirror: MlflowMirror, tmp_path: Path
) -> None:
    table = tmp_path / "step_0010.parquet"
    table.write_bytes(b"PAR1")
    summary = {"success": 0.75, "prompts": 4, "suite": "lake", "temperature": 0.5, "harness_changed": False}
    clock = table.stat().st_mtime_ns // 1_000_000
    for later in (0, 5):  # the second time the file is a copy, which has another time
        os.utime(table, ns=((clock + later) * 1_000_000,) * 2)
        mirror.log_evaluation("lake-t0.5", 10, summary, table)
    assert rows(root, mirror.run_id) == [
        ("lake-t0.5/harness_changed", 0.0, clock, 10),
        ("lake-t0.5/prompts", 4.0, clock, 10),
        ("lake-t0.5/success", 0.75, clock, 10),
    ]
    artefacts = [item.path for item in client(root).list_artifacts(mirror.run_id, "evaluation/lake-t0.5")]
    assert artefacts == ["evaluation/lake-t0.5/step_0010.parquet"]
    assert (root / "mlruns" / mirror.run_id).is_dir()


def test_a_comparison_is_kept_as_numbers_and_as_a_file(
    root: Path, mirror: MlflowMirror, tmp_path: Path
) -> None:
    comparisons = [
        {"suite": "lake", "temperature": temperature, "success_difference": 0.1 + temperature}
        for temperature in (0.5, 1.0)
    ]
    file = tmp_path / "comparison_0200.json"
    file.touch()
    for _ in range(2):
        mirror.log_comparison(comparisons, 200, file)
    assert [(key, step) for key, _, _, step in rows(root, mirror.run_id)] == [
        ("comparison/lake-t0_5/success_difference", 200),
        ("comparison/lake-t1_0/success_difference", 200),
    ]
    path = client(root).download_artifacts(mirror.run_id, "comparison.json", str(tmp_path))
    assert json.loads(Path(path).read_text()) == {"comparisons": comparisons}


# --- policies


@pytest.mark.slow
def test_a_policy_can_be_loaded_again_with_transformers(
    root: Path, mirror: MlflowMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    saved = LlamaForCausalLM(LlamaConfig(vocab_size=16, **shape))
    saved.save_pretrained(tmp_path / "policy_0100")
    table = tmp_path / "step.parquet"
    table.touch()
    # The machine's load has steps of its own, which are no policy's.
    mirror.log_iteration({"system/cpu": 0.5, "timestamp": 7}, 100)
    mirror.log_evaluation("lake-t0_5", 0, {"success": 0.25}, table)
    mirror.log_evaluation("lake-t0_5", 100, {"success": 0.75}, table)
    model_id = mirror.log_policy(tmp_path / "policy_0100", 100, {"agent": {"think": True}})
    mirror.log_evaluation("lake-t1_0", 100, {"success": 0.5}, table)

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(MlflowConfig().tracking_uri(root))
    folder = Path(mlflow.artifacts.download_artifacts(f"models:/{model_id}", dst_path=str(tmp_path / "copy")))
    mlflow.set_tracking_uri(None)
    assert json.loads((folder / "harness.json").read_text()) == {"agent": {"think": True}}
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))

    assert mirror.log_policy(tmp_path / "policy_0100", 100, {}) == model_id
    model = client(root).get_logged_model(model_id)
    assert (model.name, model.source_run_id) == ("policy-0100", mirror.run_id)
    attached = sorted((metric.key, metric.value) for metric in model.metrics)
    assert attached == [("lake-t0_5/success", 0.75), ("lake-t1_0/success", 0.5)]
    assert len(rows(root, mirror.run_id)) == 4
    outputs = client(root).get_run(mirror.run_id).outputs.model_outputs
    assert [(output.model_id, output.step) for output in outputs] == [(model_id, 100)]


def test_a_policy_that_cannot_be_read_is_not_offered_as_a_model(
    root: Path, mirror: MlflowMirror, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        mirror.log_policy(tmp_path / "missing", 7, {})
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "config.json").write_text("{}")
    assert mirror.log_policy(tmp_path / "missing", 7, {})


# --- processes

SCRIPT = """
import sys, time
from pathlib import Path
from starpo.store.runs import new_record
from starpo.app.terminal.interrupts import sigterm_interrupts
from starpo.mirror.config import MlflowConfig
from starpo.mirror.mirror import MlflowMirror
from starpo.mirror.store import open_store

root, config = Path(sys.argv[1]), MlflowConfig()
with sigterm_interrupts():
    mirror = MlflowMirror(root, config, open_store(root, config), new_record("lake", "train_starpo_s", {}))
    print(mirror.run_id, flush=True)
    if sys.argv[2] == "wait":
        time.sleep(60)
    if sys.argv[2] == "error":
        raise SystemExit(3)
    mirror.end("FINISHED")
"""


def start(root: Path, ending: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(root), ending]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_ends_its_run_as_killed(root: Path, sent: signal.Signals) -> None:
    process = start(root, "wait")
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    process.send_signal(sent)
    process.communicate(timeout=60)
    assert client(root).get_run(run_id).info.status == "KILLED"


def test_a_process_that_ends_early_leaves_its_run_killed(root: Path) -> None:
    out, _ = start(root, "error").communicate(timeout=60)
    assert client(root).get_run(out.strip()).info.status == "KILLED"


@pytest.mark.slow
def test_two_runs_that_create_the_store_together_both_work_and_are_quiet(tmp_path: Path) -> None:
    processes = [start(tmp_path, "finish") for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert err == ""
        assert client(tmp_path).get_run(out.strip()).info.status == "FINISHED"


def test_sigterm_interrupts_only_inside_its_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        signal.raise_signal(signal.SIGTERM)
        time.sleep(1)
    assert signal.getsignal(signal.SIGTERM) is before


# --- configuration


def test_a_relative_database_belongs_to_the_project_and_other_addresses_stay(tmp_path: Path) -> None:
    def uri(text: str) -> str:
        return parse_mlflow_config({"server": {"mlflow_tracking_uri": text}}).tracking_uri(tmp_path)

    assert uri("sqlite:///mlflow.db") == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
    assert uri("sqlite:////elsewhere/mlflow.db") == "sqlite:////elsewhere/mlflow.db"
    assert uri("http://server:5000") == "http://server:5000"


def test_a_misspelt_key_of_the_configuration_is_named() -> None:
    with pytest.raises(UserError, match=r"tracking\.experimnt"):
        parse_mlflow_config({"tracking": {"experimnt": {"name": "x"}}})
    with pytest.raises(UserError, match=r"tracking\.trace_share"):
        parse_mlflow_config({"tracking": {"trace_share": 2}})
    assert parse_mlflow_config({}) == MlflowConfig()

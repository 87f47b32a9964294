"""A small run on disk as a training leaves it, and all that MLflow says about one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.store.layout import Layer, Played, RunPaths
from starpo.store.runs import RunRecord, new_record, write_record
from starpo.store.schemas import SCHEMA_VERSION, TURNS

PARAMETERS = {"environment": {"name": "lake"}, "run": {"seed": 1, "iterations": 3}}
SUITE = Played("test", 0.5)


def turn(group: int, number: int, *, success: bool = False, stop: str = "terminated") -> dict[str, Any]:
    """One row of a two-turn trajectory."""
    return {
        "iteration": 0,
        "policy_step": 7,
        "environment": "lake",
        "split": "test",
        "stream": "test",
        "group": group,
        "member": 0,
        "turn": number,
        "instance_seed": group,
        "dynamics_seed": group,
        "sampling_seed": group,
        "temperature": 0.5,
        "top_p": 1.0,
        "observation": f"state {number}",
        "context_ids": [1, 2, 3],
        "response": "<think>go</think><answer>Up</answer>",
        "response_ids": [4, 5],
        "response_logprobs": [-0.5, -0.25],
        "stop_reason": "stop",
        "thought": "go",
        "actions": ["Up"],
        "executed": ["Up"],
        "format_valid": True,
        "reward": float(success),
        "effective": 1,
        "next_observation": f"state {number + 1}",
        "terminated": success,
        "truncated": False,
        "success": success,
        "trajectory_stop": stop,
        "error": "",
        "info": "{}",
        "schema_version": SCHEMA_VERSION,
    }


def table(path: Path, groups: int = 4) -> Path:
    """Trajectories of two turns, every second one successful."""
    rows = [turn(g, n, success=g % 2 == 0 and n == 1) for g in range(groups) for n in range(2)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=TURNS), path)
    return path


def begin_run(root: Path, name: str = "lake", pipeline: str = "train_starpo_s", **run: Any) -> RunRecord:
    """A run's record, with further parameters under ``run``."""
    record = new_record(name, pipeline, PARAMETERS | {"run": PARAMETERS["run"] | run})
    write_record(root, record)
    return record


def store_iteration(paths: RunPaths, iteration: int) -> dict[str, Any]:
    """Metrics and times of an iteration on disk; returns the metrics."""
    metrics = {"iteration": iteration, "timestamp": 1_700_000_000_000 + iteration, "rollout_tokens": 100}
    file = paths.folder(Layer.UPDATES) / f"iter_{iteration:04d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(metrics))
    with paths.timings.open("a") as times:
        times.write(
            json.dumps({"iteration": iteration, "seconds_rollout": 4.0, "seconds_mirror": 9.0}) + "\n"
        )
    return metrics


def store_evaluation(paths: RunPaths, step: int) -> None:
    """An evaluated suite on disk."""
    turns = table(paths.evaluation(SUITE, step))
    turns.with_suffix(".json").write_text(json.dumps({"suite": "test", "success": 0.5 + step / 100}))


def rows(root: Path, run_id: str) -> list[tuple[Any, ...]]:
    """All rows of a run's metrics but the machine's load: (key, value, timestamp, step)."""
    with sqlite3.connect(root / "mlflow.db") as database:
        query = (
            "SELECT key, value, timestamp, step FROM metrics WHERE run_uuid = ? AND key NOT LIKE 'system/%' "
            "ORDER BY key, step, timestamp"
        )
        return database.execute(query, (run_id,)).fetchall()


def copy_in_mlflow(root: Path, run_id: str) -> dict[str, Any]:
    """All that the store of ``root`` says about a run but ids."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{root.resolve()}/mlflow.db")
    run = client.get_run(run_id)
    artefacts, folders = [], [None]
    while folders:
        for each in client.list_artifacts(run_id, folders.pop()):
            (folders if each.is_dir else artefacts).append(each.path)
    traces = client.search_traces(
        locations=[run.info.experiment_id],
        filter_string=f"metadata.`mlflow.sourceRun` = '{run_id}'",
        max_results=500,
    )
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    return {
        "run": (run.info.run_name, run.info.status, run.info.start_time),
        "params": run.data.params,
        "tags": {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"},
        "rows": rows(root, run_id),
        "artefacts": sorted(artefacts),
        "traces": sorted(
            (
                trace.info.trace_metadata["mlflow.trace.session"],
                trace.info.tags["mlflow.traceName"],
                [
                    (span.name, span.start_time_ns, span.end_time_ns, span.outputs)
                    for span in trace.data.spans
                ],
            )
            for trace in traces
        ),
        "models": sorted(
            (
                model.name,
                str(model.status),
                sorted((m.key, m.value, m.step, m.timestamp) for m in model.metrics),
            )
            for model in models
        ),
        "data": sorted((each.dataset.name, each.dataset.digest) for each in run.inputs.dataset_inputs),
    }

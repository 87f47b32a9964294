"""Opening MLflow's store quietly, and putting a policy into it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starpo.mirror.config import MlflowConfig
from starpo.store.layout import Layer, layer_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would call out on every command
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def open_store(root: Path, config: MlflowConfig) -> tuple[MlflowClient, str]:
    """Open or create the store and the experiment; artefacts go to ``<root>/mlruns``.

    Returns:
        the client and the experiment's id.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # noqa: PLC0415

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    uri = config.tracking_uri(root)
    local = uri.startswith("sqlite:")
    name = config.tracking.experiment.name
    with _one_at_a_time(root) if local else contextlib.nullcontext():
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(name)
        if experiment is not None and experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        if experiment is not None:
            return client, experiment.experiment_id
        # Without an absolute place artefacts would land wherever the command was started.
        place = (root.resolve() / "mlruns").as_uri() if local else None
        return client, client.create_experiment(name, artifact_location=place)


def study_run(client: MlflowClient, experiment_id: str, study: str) -> str:
    """Id of the run that stands for ``study`` and holds its trainings; made at first use."""
    safe = study.replace("'", "")
    found = client.search_runs([experiment_id], f"tags.`starpo.study_parent` = '{safe}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    tags = {"starpo.study_parent": safe, "mlflow.source.name": "study"}
    run = client.create_run(experiment_id, run_name=safe, tags=tags)
    # It does nothing itself; a run without an end would look unfinished for ever.
    client.set_terminated(run.info.run_id, "FINISHED")
    return str(run.info.run_id)


def watch_system(run_id: str, uri: str, seconds: float) -> Any:
    """MLflow's monitor of processor, memory, disk and GPU for a run, started; ``finish()`` ends it."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor  # noqa: PLC0415

    logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
    monitor = SystemMetricsMonitor(run_id, sampling_interval=seconds, resume_logging=True, tracking_uri=uri)
    monitor.start()
    return monitor


def upload_policy(
    client: MlflowClient,
    *,
    experiment_id: str,
    run_id: str,
    name: str,
    directory: Path,
    harness: dict[str, Any],
) -> str:
    """Copy a Hugging Face folder and its harness into a logged model; returns the model's id."""
    from mlflow.entities import LoggedModelStatus  # noqa: PLC0415

    if not directory.is_dir():
        raise FileNotFoundError(f"no policy in {directory}")
    model = client.create_logged_model(
        experiment_id,
        name=name,
        source_run_id=run_id,
        tags={"directory": str(directory)},
        model_type="policy",
    )
    status = LoggedModelStatus.FAILED
    try:
        client.log_model_artifacts(model.model_id, str(directory))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "harness.json"
            path.write_text(json.dumps(harness, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            client.log_model_artifact(model.model_id, str(path))
        status = LoggedModelStatus.READY
    finally:
        client.finalize_logged_model(model.model_id, status)
    return model.model_id


def attach_evaluations(client: MlflowClient, run_id: str, model_id: str, step: int) -> None:
    """Repeat a run's evaluation metrics of one policy step as metrics of its model."""
    from mlflow.entities import Metric  # noqa: PLC0415

    names = [name for name in client.get_run(run_id).data.metrics if "/" in name]
    rows = [
        Metric(row.key, row.value, row.timestamp, row.step, model_id=model_id)
        for name in names
        for row in client.get_metric_history(run_id, name)
        if row.step == step
    ]
    if rows:
        client.log_batch(run_id, metrics=rows)


@contextlib.contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    """Two runs that start together must not both create the database's tables (Linux and macOS)."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        yield
        return
    folder = layer_folder(root, Layer.RECORDS)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

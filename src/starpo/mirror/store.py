"""Opening MLflow's store quietly and without long waits, and putting a policy into it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig
from starpo.mirror.credentials import signed_in
from starpo.mirror.faults import StoreGone, cause
from starpo.mirror.mlflow_internals import forget_stores
from starpo.redaction import redact
from starpo.store.layout import Layer, Played, layer_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would call out on every command
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # A training waits for the server: MLflow's own 120 s and 7 retries are minutes of silence.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # Else traces that a server does not take are retried for minutes after the program's end.
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}
"""MLflow's environment variables, set where the user has not."""
_LOCK_WAIT = 5.0
"""Longest wait for another process's lock on a SQLite database, s; MLflow's own is 20, ten times over when it opens."""
_TURN_WAIT = 120.0
"""Longest wait for another process that opens the store, s: on a busy machine its tables take a while."""
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Store:
    """An opened store with its experiment."""

    client: MlflowClient
    """Writes to it."""
    experiment_id: str
    """The experiment of all runs."""
    uri: str
    """Its address for MLflow; that of a database may hold a password."""
    identity: tuple[int, int] | None = field(default=None)
    """Device and inode of a SQLite database, which is another one after it was deleted."""

    def check(self) -> None:
        """Find out quickly whether a SQLite database can be written, where MLflow would wait and retry.

        Raises:
            StoreGone: it was deleted or replaced.
            sqlite3.Error: another process holds a lock, or the file is no database.
        """
        file = _database(self.uri)
        if file is not None and _identity(file) != self.identity:
            raise StoreGone(f"{file.name} was deleted or replaced while the run went on")
        _check_database(self.uri)


def open_store(root: Path, config: MlflowConfig) -> Store:
    """Open or create the store and the experiment; artefacts of a local one go to ``<root>/mlruns``.

    Raises:
        UserError: the store cannot be opened, and why.
    """
    try:
        return _open(root, config)
    except UserError:
        raise
    except Exception as error:
        place = redact(config.server.mlflow_tracking_uri)
        raise UserError(
            f"MLflow's store {place} (mlflow_tracking_uri in conf/*/mlflow.yml): {cause(error)}"
        ) from error


def _open(root: Path, config: MlflowConfig) -> Store:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # noqa: PLC0415

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    uri = signed_in(root, config.tracking_uri(root))
    local = _database(uri) is not None
    name = config.tracking.experiment.name
    with _one_at_a_time(root) if local else contextlib.nullcontext():
        _check_database(uri)
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(name)
        if experiment is not None and experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        if experiment is not None:
            experiment_id = experiment.experiment_id
        else:
            # Without an absolute place artefacts would land wherever the command was started.
            place = (root.resolve() / "mlruns").as_uri() if local else None
            experiment_id = client.create_experiment(name, artifact_location=place)
    return Store(client, experiment_id, uri, _identity(_database(uri)))


def reopened(root: Path, config: MlflowConfig) -> Store:
    """The store opened anew after a failure, without what MLflow remembers of it.

    Raises:
        UserError: as :func:`open_store`.
    """
    forget_stores()
    return open_store(root, config)


def _database(uri: str) -> Path | None:
    """File of a SQLite store; None: another kind."""
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def _identity(file: Path | None) -> tuple[int, int] | None:
    try:
        stat = file.stat() if file else None
    except FileNotFoundError:
        return None
    return (stat.st_dev, stat.st_ino) if stat else None


def _check_database(uri: str) -> None:
    """Take a SQLite database's lock for writing, if it is one, and give it back."""
    file = _database(uri)
    if file is None:
        return
    with contextlib.closing(sqlite3.connect(file, timeout=_LOCK_WAIT, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        database.execute("ROLLBACK")


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


def forget_system(monitor: Any) -> None:
    """End a monitor whose store does not answer, without waiting for it."""
    threading.Thread(target=monitor.finish, daemon=True).start()


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

    names = [name for name in client.get_run(run_id).data.metrics if Played.parse(name.partition("/")[0])]
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
    """Two runs that start together must not both create the database's tables (Linux and macOS).

    Raises:
        UserError: another process has been at it for ``_TURN_WAIT``.
    """
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        yield
        return
    folder = layer_folder(root, Layer.RECORDS)
    folder.mkdir(parents=True, exist_ok=True)
    place, started = folder / ".mlflow.lock", time.monotonic()
    with place.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - started > _TURN_WAIT:
                    raise UserError(
                        f"another process opens the store and does not end ({place} is locked)"
                    ) from None
                time.sleep(0.1)
        yield

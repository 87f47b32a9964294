"""A run that has ended, written into MLflow from its files."""

from __future__ import annotations

import re
from pathlib import Path

from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig
from starpo.mirror.faults import cause
from starpo.mirror.mirror import EndStatus, MlflowMirror
from starpo.mirror.store import Store
from starpo.mirror.stored import COMPLETE, log_ending, log_stored
from starpo.redaction import redact
from starpo.store.layout import RunPaths
from starpo.store.runs import RunRecord, read_record, write_record

_STATUS: dict[str, EndStatus] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
"""What MLflow calls a run's state; every other one is KILLED."""


def mirror_from_files(root: Path, config: MlflowConfig, store: Store, record: RunRecord) -> str:
    """Write a run into MLflow, or what is missing there; a new MLflow run's id goes into the run's record.

    Equal to the copy of a live run but for the machine's load (``system/``), which no file holds.

    Args:
        root: the project.
        config: ``mlflow.yml``.
        store: opened with the two.
        record: the run's, with its present state.

    Returns:
        MLflow's id of the run.

    Raises:
        UserError: the run goes on, its pipeline is not tracked, a file is unreadable, or the store fails.
    """
    if record.state == "running":
        raise UserError(
            f"run {record.name!r} is running and writes what MLflow lacks by itself; mirror it when it has ended"
        )
    if record.pipeline in config.tracking.disable_tracking.pipelines:
        raise UserError(
            f"run {record.name!r}: disable_tracking in conf/*/mlflow.yml names its pipeline {record.pipeline}; "
            "take it from that list"
        )
    paths = RunPaths(root, record.name)
    try:
        store.check()
        parent = source_run_id(paths, record)
        mirror = MlflowMirror(root, config, store, record, parent=parent, live=False)
        if mirror.run_id != record.mlflow_run_id:
            # The record as it stands: a killed run is not to be marked as what this process believes.
            write_record(
                root, read_record(root, record.name).model_copy(update={"mlflow_run_id": mirror.run_id})
            )
        log_stored(mirror, paths, record)
        log_ending(mirror, paths, complete=record.state in COMPLETE)
        mirror.end(_STATUS.get(record.state, "KILLED"), _last_written(paths))
    except UserError:
        raise
    except Exception as error:
        place = redact(config.server.mlflow_tracking_uri)
        raise UserError(
            f"MLflow's store {place}: {cause(error)}; what was written stays, repeat: starpo runs mirror {record.name}"
        ) from error
    return mirror.run_id


def source_run_id(paths: RunPaths, record: RunRecord) -> str | None:
    """MLflow run of the training that a stage alone worked on, as its parameters or its own name say."""
    if record.trains:
        return None
    named = record.parameters.get("run", {}).get("source")
    default = re.match(rf"{re.escape(record.pipeline)}-(.+?)-\d{{4,}}(?:-against-.+)?$", record.name)
    source = named.partition("@")[0] if named else default and default[1]
    if not source or not RunPaths(paths.root, source).record.exists():
        return None
    return read_record(paths.root, source).mlflow_run_id


def _last_written(paths: RunPaths) -> int | None:
    """When the last of the files that MLflow is told of was written, unix ms; None: there are none."""
    files = [*paths.metrics().values(), *paths.evaluations("summary").values(), *paths.comparisons().values()]
    return max((file.stat().st_mtime_ns // 1_000_000 for file in files), default=None)

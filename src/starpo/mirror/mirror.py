"""A run's copy in MLflow: what is written there, and that writing it again changes nothing.

The files are the truth; MLflow is a mirror. Every method here raises what MLflow raises:
:mod:`starpo.mirror.live` keeps it from the training.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from starpo.config.identity import EXTENDABLE, flatten
from starpo.mirror.config import MlflowConfig
from starpo.mirror.lineage import log_lineage
from starpo.mirror.registry import offer_candidate, register
from starpo.mirror.store import (
    Store,
    attach_evaluations,
    forget_system,
    study_run,
    upload_policy,
    watch_system,
)
from starpo.mirror.traces import Key, log_traces, sampled_keys
from starpo.redaction import redact
from starpo.store.layout import Played
from starpo.store.runs import RunRecord

if TYPE_CHECKING:
    from mlflow.entities import Metric

logger = logging.getLogger(__name__)

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]

_PARAMS_PER_CALL = 100
"""MLflow's limit for one batch."""
_METRICS_PER_CALL = 1000
"""MLflow's limit for one batch."""
_PARAM_LENGTH = 6000
"""MLflow's limit for a parameter's text."""
_AXES = {"timestamp", "iteration", "policy_step", "temperature"}
"""Numbers that say where a metric belongs and are none themselves."""


class MlflowMirror:
    """One run's copy in MLflow, open from its making to ``end``.

    Without ``end`` a live run ends as KILLED when the process exits or ``close`` is called. Ctrl-C does that by itself,
    SIGTERM within ``interrupts.sigterm_interrupts``.

    Args:
        root: the project.
        config: ``mlflow.yml``.
        store: opened with the same two.
        record: what the project knows about the run. ``record.mlflow_run_id`` is continued where the store still has
            it, else a new MLflow run is started.
        parent: MLflow run that it is nested in, such as the training that an evaluation is of; a run of a study is
            nested in the study's parent run, which is made if there is none.
        live: the run goes on in this process, whose load MLflow shows; else it is written from its files.
    """

    def __init__(
        self,
        root: Path,
        config: MlflowConfig,
        store: Store,
        record: RunRecord,
        *,
        parent: str | None = None,
        live: bool = True,
    ) -> None:
        self._root = root
        self._config = config
        self._store = store
        self._client = store.client
        self._policies: dict[int, str] = {}
        self._system: Any = None
        self._pid = os.getpid()
        self._open = True
        self.run_id = self._run(record, parent, live)
        """MLflow's id of the run, for the record."""
        self._log_params(record.parameters)
        if live:
            atexit.register(self.close)
            seconds = config.tracking.system_metrics_seconds
            if seconds is not None:
                self._system = watch_system(self.run_id, store.uri, seconds)

    def log_iteration(self, metrics: dict[str, Any], step: int) -> None:
        """The numbers of one iteration, in one call.

        Args:
            metrics: flat; ``timestamp`` (unix ms) becomes the rows' time, so that writing them again changes
                nothing. Text and values that are not finite are left out.
            step: iteration.
        """
        self._log_numbers(_rows(metrics, step, "", int(metrics["timestamp"])))

    def log_evaluation(self, suite: str, step: int, summary: dict[str, Any], table: Path) -> None:
        """A suite's summary as metrics ``<suite>/<key>``, and its table as artefact ``evaluation/<suite>``.

        Args:
            suite: folder name, with temperature.
            step: policy step.
            summary: the keys of ``METRICS``.
            table: the evaluated turns; when the file was written is the rows' time.
        """
        model = self._policies.get(step) or self._find_policy(step)
        self._log_numbers(_rows(summary, step, f"{suite}/", _written(table), model))
        self._client.log_artifact(self.run_id, str(table), f"evaluation/{suite}")

    def log_policy(self, directory: Path, step: int, harness: dict[str, Any]) -> str:
        """A policy as MLflow model: the Hugging Face folder as it is, ``harness.json`` beside the weights.

        With ``mlflow.set_tracking_uri`` on the same store, ``download_artifacts("models:/<id>")`` of
        ``mlflow.artifacts`` gives a folder for ``from_pretrained``. The evaluations of this step, earlier and
        later, are attached to the model, which makes MLflow's list of models a leaderboard.

        Args:
            directory: the saved policy.
            step: policy step.
            harness: what belongs to the policy beside weights: prompt template, parser, limits; JSON-able.

        Returns:
            the model's id; the existing one if this step was logged before.
        """
        from mlflow.entities import LoggedModelOutput  # noqa: PLC0415

        model_id = self._find_policy(step)
        if model_id is None:
            model_id = upload_policy(
                self._client,
                experiment_id=self._store.experiment_id,
                run_id=self.run_id,
                name=_policy_name(step),
                directory=directory,
                harness=harness,
            )
            self._client.log_outputs(self.run_id, [LoggedModelOutput(model_id, step=step)])
            attach_evaluations(self._client, self.run_id, model_id, step)
        self._policies[step] = model_id
        return model_id

    def log_comparison(self, comparisons: list[dict[str, Any]], step: int, file: Path) -> None:
        """First against last policy: ``comparison.json`` and metrics ``comparison/<suite>-t<T>/<key>``.

        Args:
            comparisons: results of ``compare``.
            step: step of the policy after.
            file: where they are stored; when it was written is the rows' time.
        """
        for one in comparisons:
            prefix = f"comparison/{Played(one['suite'], one['temperature']).folder}/"
            self._log_numbers(_rows(one, step, prefix, _written(file)))
        self._client.log_dict(self.run_id, {"comparisons": comparisons}, "comparison.json")

    def log_traces(self, suite: str, step: int, table: Path, seconds: dict[Key, list[float]]) -> int:
        """A share (``tracking.trace_share``) of a suite's trajectories as traces; returns how many were new.

        Args:
            suite: folder name, with temperature.
            step: iterations behind the policy.
            table: the evaluated turns.
            seconds: wall-clock time of each turn by (group, member).
        """
        share = self._config.tracking.trace_share
        if not share:
            return 0
        import mlflow  # noqa: PLC0415

        from starpo.store.reading import read_table  # noqa: PLC0415

        mlflow.set_tracking_uri(self._store.uri)
        turns = read_table(table, "turns")
        name = self._client.get_run(self.run_id).info.run_name
        return log_traces(
            self._client,
            turns,
            sampled_keys(turns, share),
            experiment_id=self._store.experiment_id,
            run_id=self.run_id,
            session=f"{name}/{suite}/step_{step:04d}",
            seconds=seconds,
            ended=table.stat().st_mtime_ns,
        )

    def register_candidate(self, environment: str, run: str, iteration: int, finished: int) -> str:
        """The logged policy of ``iteration`` in the Model Registry: the candidate, unless a later one is.

        Args:
            environment: what it was trained on.
            run: name of the run.
            iteration: iterations behind the policy; it was logged before.
            finished: when the training ended, unix ms.

        Returns:
            the registered version.
        """
        version = register(
            self._client,
            environment=environment,
            model_id=self._policies[iteration],
            run_id=self.run_id,
            run=run,
            iteration=iteration,
            finished=finished,
        )
        offer_candidate(self._client, environment, version, finished)
        return version

    def log_data(self, run: str) -> dict[str, str]:
        """The run's trajectories as dataset inputs with DVC's hashes, by data layer."""
        return log_lineage(self._client, self.run_id, self._root, run)

    def log_folder(self, folder: Path, name: str) -> None:
        """All files of ``folder`` as the artefact folder ``name``; those of an earlier call are replaced."""
        self._client.log_artifacts(self.run_id, str(folder), name)

    def end(self, status: EndStatus, ended: int | None = None) -> None:
        """End the run; a second call does nothing, nor does one of a run that has ended so.

        Args:
            status: how it ended.
            ended: unix ms; None: now.
        """
        if not self._open:
            return
        self._forget()
        if self._system is not None:
            self._system.finish()
        if self._client.get_run(self.run_id).info.status != status:
            self._client.set_terminated(self.run_id, status, ended)

    def close(self) -> None:
        """End a run that nobody ended as KILLED; a forked process leaves its parent's run alone."""
        if os.getpid() == self._pid:
            try:
                self.end("KILLED")
            except Exception as error:
                logger.warning("MLflow: run %s was not ended (%s)", self.run_id, error)

    def check(self) -> None:
        """Raise at once where the store cannot be written and MLflow would wait (:meth:`Store.check`)."""
        self._store.check()

    def abandon(self) -> None:
        """Leave a run alone whose store does not work, without waiting for it."""
        self._forget()
        if self._system is not None:
            forget_system(self._system)

    def _forget(self) -> None:
        self._open = False
        atexit.unregister(self.close)

    def _run(self, record: RunRecord, parent: str | None, live: bool) -> str:
        """Continue or create the MLflow run; returns its id. Parameters that may be extended are tags."""
        client, experiment_id = self._client, self._store.experiment_id
        flat = flatten(record.parameters)
        tags = {".".join(key): redact(str(value)) for key, value in flat.items() if key in EXTENDABLE}
        tags |= _tags(record)
        study = flat.get(("run", "study"))
        above = study_run(client, experiment_id, study) if study else parent
        if above is not None:
            tags["mlflow.parentRunId"] = above
        if record.mlflow_run_id is None or not self._exists(record.mlflow_run_id):
            name = self._config.tracking.run.name or record.name
            run = client.create_run(experiment_id, start_time=record.created, run_name=name, tags=tags)
            return str(run.info.run_id)
        if live:
            client.update_run(record.mlflow_run_id, status="RUNNING")
        for key, value in tags.items():
            client.set_tag(record.mlflow_run_id, key, value)
        return record.mlflow_run_id

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        try:
            return str(self._client.get_run(run_id).info.lifecycle_stage) == "active"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            logger.info("MLflow has no run %s any more; a new one is started", run_id)
            return False

    def _log_params(self, parameters: dict[str, Any]) -> None:
        from mlflow.entities import Param  # noqa: PLC0415

        known = self._client.get_run(self.run_id).data.params
        named = {".".join(key): value for key, value in flatten(parameters).items() if key not in EXTENDABLE}
        new = [Param(k, redact(_text(v))[:_PARAM_LENGTH]) for k, v in sorted(named.items()) if k not in known]
        for start in range(0, len(new), _PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, params=new[start : start + _PARAMS_PER_CALL])

    def _log_numbers(self, rows: list[Metric]) -> None:
        """Write rows that the run does not hold yet, perhaps from before a kill or from another copy of the file, under
        another time. One row speaks for its call, which MLflow takes in one transaction.
        """
        if not rows:
            return
        first = rows[0]
        history = self._client.get_metric_history(self.run_id, first.key)
        if any((each.step, each.value) == (first.step, first.value) for each in history):
            return
        for start in range(0, len(rows), _METRICS_PER_CALL):
            self._client.log_batch(self.run_id, metrics=rows[start : start + _METRICS_PER_CALL])

    def _find_policy(self, step: int) -> str | None:
        found = self._client.search_logged_models(
            [self._store.experiment_id],
            filter_string=f"name = '{_policy_name(step)}' AND source_run_id = '{self.run_id}'",
        )
        return next((model.model_id for model in found if model.status == "READY"), None)


def _rows(
    values: dict[str, Any], step: int, prefix: str, timestamp: int, model: str | None = None
) -> list[Metric]:
    """MLflow's rows of the finite numbers in ``values``; ``timestamp`` in unix ms."""
    from mlflow.entities import Metric  # noqa: PLC0415

    return [
        Metric(prefix + name, float(value), timestamp, step, model_id=model)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value) and name not in _AXES
    ]


def _written(file: Path) -> int:
    """When ``file`` was written, unix ms."""
    return file.stat().st_mtime_ns // 1_000_000


def _text(value: Any) -> str:
    """A parameter as text, the same however the keys in it are ordered."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)


def _policy_name(step: int) -> str:
    return f"policy-{step:04d}"


def _tags(record: RunRecord) -> dict[str, str]:
    tags = {
        "starpo.run": record.name,
        "starpo.pipeline": record.pipeline,
        "starpo.fingerprint": record.fingerprint,
        "mlflow.source.name": record.pipeline,
    }
    environment = record.parameters.get("environment", {}).get("name")
    optional = {
        "starpo.environment": environment,
        "mlflow.source.git.commit": record.git_commit,
        "starpo.forked_from": record.forked_from,
    }
    if record.machines:
        optional |= {
            "starpo.processor": record.machines[-1].processor,
            "starpo.capability": record.machines[-1].capability,
        }
    return tags | {name: value for name, value in optional.items() if value}

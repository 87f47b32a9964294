"""What the run's files say, shown in MLflow. The files are the truth; MLflow is a mirror.

No failure in here reaches the training: hours of work are not lost to a locked database. Everything can be
written again from the files, and gives the same rows.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from starpo.config.identity import EXTENDABLE, flatten
from starpo.mirror.config import MlflowConfig
from starpo.mirror.lineage import log_lineage
from starpo.mirror.only_warns import only_warns
from starpo.mirror.registry import CANDIDATE, register, set_alias
from starpo.mirror.store import open_store, study_run, watch_system
from starpo.mirror.traces import Key, log_traces, sampled_keys
from starpo.store.layout import Played
from starpo.store.runs import RunRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
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
    """One run's mirror in MLflow.

    ``begin`` first, ``end`` last; without ``end`` the run ends as KILLED when the process exits or ``close``
    is called. Ctrl-C does that by itself, SIGTERM within ``interrupts.sigterm_interrupts``.
    Before ``begin``, or after it failed, all methods do nothing.
    """

    def __init__(self, root: Path, config: MlflowConfig) -> None:
        self._root = root
        self._config = config
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._run_id: str | None = None
        self._policies: dict[int, str] = {}
        self._system: Any = None
        self.failures = 0
        self.warned = False
        self._pid = os.getpid()

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, once begun."""
        return self._run_id

    @only_warns
    def begin(
        self,
        record: RunRecord,
        parameters: dict[str, Any],
        tags: dict[str, str] | None = None,
        *,
        study: str | None = None,
        parent: str | None = None,
    ) -> str | None:
        """Start the run, or continue ``record.mlflow_run_id`` where the store still has it.

        Parameters that may be extended are tags, because MLflow's params cannot change.

        Args:
            record: what the project knows about the run.
            parameters: resolved, nested.
            tags: more tags.
            study: the run is nested in this study's parent run, which is made if there is none.
            parent: MLflow run that it is nested in otherwise, such as the training that an evaluation is of.

        Returns:
            the MLflow run's id, for the record; None if MLflow failed or the pipeline is not tracked.
        """
        if record.pipeline in self._config.tracking.disable_tracking.pipelines:
            return None
        client, self._experiment_id = open_store(self._root, self._config)
        self._client = client
        run_id = record.mlflow_run_id if self._exists(client, record.mlflow_run_id) else None
        flat = flatten(parameters)
        extendable = {".".join(key): str(value) for key, value in flat.items() if key in EXTENDABLE}
        all_tags = extendable | self._tags(record) | (tags or {})
        above = study_run(client, self._experiment_id, study) if study else parent
        if above is not None:
            all_tags["mlflow.parentRunId"] = above
        if run_id is None:
            name = self._config.tracking.run.name or record.name
            run_id = client.create_run(self._experiment_id, run_name=name, tags=all_tags).info.run_id
        else:
            client.update_run(run_id, status="RUNNING")
            for key, value in all_tags.items():
                client.set_tag(run_id, key, value)
        self._run_id = run_id
        atexit.register(self.close)
        self._log_params(client, run_id, {".".join(k): v for k, v in flat.items() if k not in EXTENDABLE})
        seconds = self._config.tracking.system_metrics_seconds
        if seconds is not None:
            self._system = watch_system(run_id, self._config.tracking_uri(self._root), seconds)
        return run_id

    @only_warns
    def log_iteration(self, metrics: dict[str, Any], step: int) -> None:
        """The numbers of one iteration, in one call.

        Args:
            metrics: flat; ``timestamp`` (unix ms) becomes the rows' time, so that writing them again changes
                nothing. Text and values that are not finite are left out.
            step: iteration.
        """
        self._log_numbers(metrics, step, "", int(metrics["timestamp"]))

    @only_warns
    def log_evaluation(
        self, suite: str, step: int, summary: dict[str, Any], parquet_path: Path | None = None
    ) -> None:
        """A suite's summary as metrics ``<suite>/<key>``, and its table as artefact ``evaluation/<suite>``.

        Args:
            suite: folder name, with temperature.
            step: policy step.
            summary: the keys of ``METRICS``, and ``timestamp`` if it has one.
            parquet_path: the evaluated turns; None: no artefact.
        """
        if self._client is None or self._run_id is None:
            return
        # Without a clock of its own the file's time is the one that a second call finds again.
        written = parquet_path.stat().st_mtime_ns // 1_000_000 if parquet_path else 0
        model = self._policies.get(step) or self._find_policy(step)
        self._log_numbers(summary, step, f"{suite}/", int(summary.get("timestamp", written)), model)
        if parquet_path is not None:
            self._client.log_artifact(self._run_id, str(parquet_path), f"evaluation/{suite}")

    @only_warns
    def log_policy(self, directory: Path, step: int, harness: dict[str, Any]) -> str | None:
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
        if self._client is None or self._run_id is None:
            return None
        from mlflow.entities import LoggedModelOutput  # noqa: PLC0415

        from starpo.mirror.store import attach_evaluations, upload_policy  # noqa: PLC0415

        model_id = self._find_policy(step)
        if model_id is None:
            model_id = upload_policy(
                self._client,
                experiment_id=self._experiment_id,
                run_id=self._run_id,
                name=_policy_name(step),
                directory=directory,
                harness=harness,
            )
            self._client.log_outputs(self._run_id, [LoggedModelOutput(model_id, step=step)])
            attach_evaluations(self._client, self._run_id, model_id, step)
        self._policies[step] = model_id
        return model_id

    @only_warns
    def log_comparison(self, comparisons: list[dict[str, Any]], step: int) -> None:
        """First against last policy: ``comparison.json`` and metrics ``comparison/<suite>-t<T>/<key>``.

        Args:
            comparisons: results of ``compare``.
            step: step of the policy after.
        """
        if self._client is None or self._run_id is None:
            return
        # A comparison has no clock of its own: what the run already says is not said again.
        known = self._client.get_run(self._run_id).data.metrics
        for one in comparisons:
            prefix = f"comparison/{Played(one['suite'], one['temperature']).folder}/"
            news = {name: value for name, value in one.items() if known.get(prefix + name) != value}
            self._log_numbers(news, step, prefix, time.time_ns() // 1_000_000)
        self._client.log_dict(self._run_id, {"comparisons": comparisons}, "comparison.json")

    @only_warns
    def log_traces(self, suite: str, step: int, parquet_path: Path, seconds: dict[Key, list[float]]) -> int:
        """A share (``tracking.trace_share``) of a suite's trajectories as traces; returns how many.

        Args:
            suite: folder name, with temperature.
            step: iterations behind the policy.
            parquet_path: the evaluated turns.
            seconds: wall-clock time of each turn by (group, member).
        """
        share = self._config.tracking.trace_share
        if self._client is None or self._run_id is None or not share:
            return 0
        import mlflow  # noqa: PLC0415

        from starpo.store.reading import read_table  # noqa: PLC0415

        mlflow.set_tracking_uri(self._config.tracking_uri(self._root))
        table = read_table(parquet_path, "turns")
        name = self._client.get_run(self._run_id).info.run_name
        return log_traces(
            table,
            sampled_keys(table, share),
            experiment_id=self._experiment_id,
            run_id=self._run_id,
            session=f"{name}/{suite}/step_{step:04d}",
            seconds=seconds,
        )

    @only_warns
    def register_candidate(self, environment: str, run: str, iteration: int) -> str | None:
        """The logged policy of ``iteration`` as the environment's candidate in the Model Registry."""
        model_id = self._policies.get(iteration)
        if self._client is None or self._run_id is None or model_id is None:
            return None
        version = register(
            self._client,
            environment=environment,
            model_id=model_id,
            run_id=self._run_id,
            run=run,
            iteration=iteration,
        )
        set_alias(self._client, environment, CANDIDATE, version)
        return version

    @only_warns
    def log_data(self, run: str) -> dict[str, str]:
        """The run's trajectories as dataset inputs with DVC's hashes, by data layer."""
        if self._client is None or self._run_id is None:
            return {}
        return log_lineage(self._client, self._run_id, self._root, run)

    @only_warns
    def log_folder(self, folder: Path, name: str) -> None:
        """All files of ``folder`` as the artefact folder ``name``; those of an earlier call are replaced."""
        if self._client is not None and self._run_id is not None:
            self._client.log_artifacts(self._run_id, str(folder), name)

    @only_warns
    def end(self, status: EndStatus) -> None:
        """End the run; a second call does nothing."""
        if self._client is None or self._run_id is None:
            return
        client, run_id = self._client, self._run_id
        self._client = self._run_id = None
        atexit.unregister(self.close)
        if self._system is not None:
            self._system.finish()
            self._system = None
        client.set_terminated(run_id, status)

    def close(self) -> None:
        """End a run that nobody ended as KILLED; a forked process leaves its parent's run alone."""
        if os.getpid() == self._pid:
            self.end("KILLED")

    @staticmethod
    def _exists(client: MlflowClient, run_id: str | None) -> bool:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        if run_id is None:
            return False
        try:
            return client.get_run(run_id).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            logger.warning("MLflow has no run %s any more; a new one is started", run_id)
            return False

    @staticmethod
    def _tags(record: RunRecord) -> dict[str, str]:
        tags = {
            "starpo.run": record.name,
            "starpo.pipeline": record.pipeline,
            "starpo.fingerprint": record.fingerprint,
            "mlflow.source.name": record.pipeline,
        }
        if record.git_commit:
            tags["mlflow.source.git.commit"] = record.git_commit
        if record.forked_from:
            tags["starpo.forked_from"] = record.forked_from
        if record.machines:
            tags["starpo.processor"] = record.machines[-1].processor
            tags["starpo.capability"] = record.machines[-1].capability
        return tags

    @staticmethod
    def _log_params(client: MlflowClient, run_id: str, parameters: dict[str, Any]) -> None:
        from mlflow.entities import Param  # noqa: PLC0415

        known = client.get_run(run_id).data.params
        new = [Param(k, str(v)[:_PARAM_LENGTH]) for k, v in sorted(parameters.items()) if k not in known]
        for start in range(0, len(new), _PARAMS_PER_CALL):
            client.log_batch(run_id, params=new[start : start + _PARAMS_PER_CALL])

    def _log_numbers(
        self, values: dict[str, Any], step: int, prefix: str, timestamp: int, model: str | None = None
    ) -> None:
        if self._client is None or self._run_id is None:
            return
        from mlflow.entities import Metric  # noqa: PLC0415

        rows: list[Metric] = [
            Metric(prefix + name, float(value), timestamp, step, model_id=model)
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value) and name not in _AXES
        ]
        for start in range(0, len(rows), _METRICS_PER_CALL):
            self._client.log_batch(self._run_id, metrics=rows[start : start + _METRICS_PER_CALL])

    def _find_policy(self, step: int) -> str | None:
        if self._client is None:
            return None
        found = self._client.search_logged_models(
            [self._experiment_id],
            filter_string=f"name = '{_policy_name(step)}' AND source_run_id = '{self._run_id}'",
        )
        return next((model.model_id for model in found if model.status == "READY"), None)


def _policy_name(step: int) -> str:
    return f"policy-{step:04d}"

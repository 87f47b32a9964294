"""The run in MLflow: a copy of what is on disk, whose failure stops nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.clock import ClockHooks
from starpo.app.hooks.gates import GateHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.terminal.quiet import native_output_to
from starpo.store import runs
from starpo.store.layout import Played, RunPaths, parse_entry

if TYPE_CHECKING:
    from starpo.mirror.mirror import MlflowMirror


class MirrorHooks:
    """Logs parameters, metrics, evaluations, policies and Data Docs into MLflow."""

    def __init__(self, run: RunRecordHooks, clock: ClockHooks, gates: GateHooks) -> None:
        self._run = run
        self._clock = clock
        self._gates = gates
        self._loader: Any = None
        self._mirror: MlflowMirror | None = None

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Remember how MLflow is set up."""
        self._loader = context.config_loader

    @hook_impl
    def before_pipeline_run(self, pipeline: Any) -> None:
        """Start the MLflow run."""
        from starpo.mirror.config import parse_mlflow_config  # noqa: PLC0415
        from starpo.mirror.mirror import MlflowMirror  # noqa: PLC0415

        if self._run.record is None or not pipeline.nodes:
            return
        resolved = self._run.resolved
        if "mlflow" not in self._loader.config_patterns:
            self._loader.config_patterns["mlflow"] = ["mlflow*", "mlflow*/**"]
        self._mirror = MlflowMirror(self._run.root, parse_mlflow_config(dict(self._loader["mlflow"])))
        with native_output_to(self._run.log_file):
            run_id = self._mirror.begin(
                self._run.record,
                resolved.raw,
                {"starpo.environment": resolved.parameters.environment.name},
                study=resolved.parameters.run.study,
                parent=self._source_run_id(resolved.names),
            )
        if run_id:
            self._run.update(mlflow_run_id=run_id)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Log what was written."""
        entry = parse_entry(dataset_name)
        if self._mirror is None or entry is None:
            return
        if entry.kind == "metrics":
            self._mirror.log_iteration(data | self._clock.iteration, int(data["iteration"]))
        elif entry.kind == "summary" and entry.played is not None and entry.number is not None:
            self._log_evaluation(self._mirror, entry.played, entry.number, data)
        elif entry.kind == "comparison" and entry.number is not None:
            self._mirror.log_comparison(data["comparisons"], entry.number)
            if "between" not in data:  # else policies of other runs, which own them
                self._log_policies(self._mirror, entry.number)

    @hook_impl
    def after_pipeline_run(self) -> None:
        """End the MLflow run."""
        self._end("FINISHED")

    @hook_impl
    def on_pipeline_error(self) -> None:
        """End the MLflow run as failed."""
        self._end("FAILED")

    def interrupted(self) -> None:
        """Ctrl-C or SIGTERM: the MLflow run ends as killed."""
        self._end("KILLED")

    def _end(self, status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        if self._mirror is None:
            return
        if self._gates.data_docs is not None:
            self._mirror.log_folder(self._gates.data_docs, "data_docs")
        if status == "FINISHED":
            self._mirror.log_data(self._run.name)
        self._mirror.end(status)
        self._mirror = None

    def _log_evaluation(
        self, mirror: MlflowMirror, played: Played, step: int, summary: dict[str, Any]
    ) -> None:
        table = self._run.paths.evaluation(played, step)
        mirror.log_evaluation(played.folder, step, summary, table)
        mirror.log_traces(played.folder, step, table, self._turn_seconds(played, step))

    def _log_policies(self, mirror: MlflowMirror, last: int) -> None:
        """First and last policy as models in MLflow; the last one of a run that was not stopped is the candidate."""
        from starpo.store.policies import Policy  # noqa: PLC0415
        from starpo.store.policy_state import MANIFEST  # noqa: PLC0415

        for iteration in (0, last):
            folder = self._run.paths.policy(iteration)
            if (folder / MANIFEST).exists():
                policy = Policy.open(folder)
                mirror.log_policy(policy.model_directory, iteration, policy.harness())
                if iteration == last and policy.manifest["status"] != "stopped":
                    environment = self._run.resolved.parameters.environment.name
                    mirror.register_candidate(environment, self._run.name, last)

    def _turn_seconds(self, played: Played, step: int) -> dict[tuple[int, int], list[float]]:
        """Clock times of an evaluation's turns by (group, member)."""
        file = self._run.paths.turn_seconds(played, step)
        if not file.exists():
            return {}
        named = {key.partition("."): each for key, each in json.loads(file.read_text()).items()}
        return {(int(group), int(member)): each for (group, _, member), each in named.items()}

    def _source_run_id(self, names: dict[str, str]) -> str | None:
        """MLflow run of the training that a stage alone works on."""
        source = names["source"]
        if source == names["name"] or not RunPaths(self._run.root, source).record.exists():
            return None
        return runs.read_record(self._run.root, source).mlflow_run_id

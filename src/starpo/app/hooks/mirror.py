"""The run in MLflow: a copy of what is on disk, whose failure stops nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.clock import ClockHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.terminal.console import console
from starpo.app.terminal.quiet import native_output_to
from starpo.store import runs
from starpo.store.layout import RunPaths, parse_entry

if TYPE_CHECKING:
    from starpo.mirror.live import LiveMirror


class MirrorHooks:
    """Logs parameters, metrics, evaluations, policies and Data Docs into MLflow, and says when that fails."""

    def __init__(self, run: RunRecordHooks, clock: ClockHooks) -> None:
        self._run = run
        self._clock = clock
        self._loader: Any = None
        self._mirror: LiveMirror | None = None

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Remember how MLflow is set up."""
        self._loader = context.config_loader

    @hook_impl
    def before_pipeline_run(self, pipeline: Any) -> None:
        """Start the MLflow run."""
        from starpo.mirror.config import parse_mlflow_config  # noqa: PLC0415
        from starpo.mirror.live import LiveMirror  # noqa: PLC0415

        if self._run.record is None or not pipeline.nodes:
            return
        if "mlflow" not in self._loader.config_patterns:
            self._loader.config_patterns["mlflow"] = ["mlflow*", "mlflow*/**"]
        config = parse_mlflow_config(dict(self._loader["mlflow"]))
        if self._run.record.pipeline in config.tracking.disable_tracking.pipelines:
            return
        self._mirror = LiveMirror(
            self._run.paths,
            config,
            self._record,
            lambda run_id: self._run.update(mlflow_run_id=run_id),
            self._source_run_id(self._run.resolved.names),
            self._run.resolved.env,
        )
        self._quietly(self._mirror, self._mirror.begin)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Log what was written."""
        entry, mirror = parse_entry(dataset_name), self._mirror
        if mirror is None or entry is None:
            return
        from starpo.mirror.stored import log_comparison, log_evaluation  # noqa: PLC0415

        paths, played, number = self._run.paths, entry.played, entry.number
        if entry.kind == "metrics":
            metrics = data | self._clock.iteration
            self._quietly(
                mirror, lambda: mirror.write(lambda to: to.log_iteration(metrics, int(data["iteration"])))
            )
        elif entry.kind == "summary" and played is not None and number is not None:
            self._quietly(
                mirror, lambda: mirror.write(lambda to: log_evaluation(to, paths, played, number), again=True)
            )
        elif entry.kind == "comparison" and number is not None:
            self._quietly(
                mirror, lambda: mirror.write(lambda to: log_comparison(to, paths, self._record(), number))
            )

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
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            self._quietly(mirror, lambda: mirror.end(status))

    def _quietly(self, mirror: LiveMirror, act: Callable[[], None]) -> None:
        """Do it without MLflow's words on the terminal, then show ours."""
        with native_output_to(self._run.log_file):
            act()
        for sentence in mirror.news:
            style = "yellow" if console().is_terminal else None
            console().print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)
        mirror.news.clear()

    def _record(self) -> runs.RunRecord:
        assert self._run.record is not None
        return self._run.record

    def _source_run_id(self, names: dict[str, str]) -> str | None:
        """MLflow run of the training that a stage alone works on."""
        source = names["source"]
        if source == names["name"] or not RunPaths(self._run.root, source).record.exists():
            return None
        return runs.read_record(self._run.root, source).mlflow_run_id

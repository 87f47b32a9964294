"""Kedro hooks: which run this is, that it may go on, and how it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl
from omegaconf import OmegaConf

from starpo import parameters, runs
from starpo.errors import UserError
from starpo.run_paths import MODELS, RECORDS
from starpo.tracking.quiet import log_to_file, native_output_to

if TYPE_CHECKING:
    from starpo.data.expectations.gate import Clock

logger = logging.getLogger(__name__)

#: Pipelines without a run of their own, because they build what all runs share or only read: which of the names
#: in ``${run:…}`` their log goes to.
_RUNLESS = {"base_policy": "base", "report": "report"}


class RunHooks:
    """Resolves the parameters, guards the run's identity and records its state."""

    def __init__(self) -> None:
        self._root = Path()
        self._record: runs.RunRecord | None = None
        self._handler: logging.Handler | None = None

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Merge preset and ``--params``, validate, and answer ``${run:…}`` in the catalog."""
        from kedro.framework.project import pipelines  # noqa: PLC0415

        self._root = Path(context.project_path)
        requested = list(pipelines._requested_pipelines or [])
        if len(requested) > 1:
            raise UserError(f"one pipeline at a time, not {', '.join(requested)}: each has a run of its own")
        loader = context.config_loader
        runtime = dict(context._runtime_params or {})
        # Kedro would merge --params below the preset, and before we can see which names they change.
        merged, loader.runtime_params = loader.runtime_params, {}
        raw = dict(loader["parameters"])
        loader.runtime_params = merged
        resolved = parameters.resolve_parameters(
            raw, requested[0] if requested else "train_starpo_s", runtime, self._root
        )
        context.config_loader["parameters"] = resolved.raw
        OmegaConf.register_new_resolver("run", lambda key: resolved.names[key], replace=True)

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any]) -> None:
        """Open or continue the run's record; refuse changed parameters and damaged states before any work."""
        from rich.console import Console  # noqa: PLC0415

        from starpo.preflight import check_before_work  # noqa: PLC0415

        resolved = parameters.current()
        _use_threads(resolved.parameters.run.threads)
        if resolved.pipeline in _RUNLESS:
            self._log(resolved.names[_RUNLESS[resolved.pipeline]])
            return
        name = resolved.names["name"]
        memory = check_before_work(self._root, resolved)
        if memory is not None:
            Console().print(memory.table(), highlight=False)
        commit = _git_commit(self._root)
        if runs.record_path(self._root, name).exists():
            record = runs.continued(runs.read_record(self._root, name), resolved.raw)
        else:
            fork = resolved.parameters.run.fork_from
            record = runs.new_record(
                name, resolved.pipeline, resolved.raw, git_commit=commit, forked_from=fork
            )
        runs.write_record(self._root, record)
        self._record = record
        self._log(name)

    @hook_impl
    def after_pipeline_run(self, catalog: Any) -> None:
        """The run is complete."""
        state: runs.State = "stopped" if self._stopped() else "finished"
        self._end(catalog, state, "")

    @hook_impl
    def on_pipeline_error(self, error: Exception, catalog: Any) -> None:
        """The run failed; what it wrote stays."""
        self._end(catalog, "failed", f"{type(error).__name__}: {error}".partition("\n")[0])

    def interrupted(self) -> None:
        """Ctrl-C or SIGTERM, which Kedro's hooks do not see."""
        if self._record is not None and self._record.state == "running":
            self._write("killed", "interrupted")

    def update_record(self, **fields: Any) -> None:
        """Change fields of the present run's record."""
        if self._record is not None:
            self._record = self._record.model_copy(update=fields)
            runs.write_record(self._root, self._record)

    @property
    def record(self) -> runs.RunRecord | None:
        """The present run, once begun."""
        return self._record

    def _stopped(self) -> bool:
        if self._record is None:
            return False
        manifests = sorted((self._root / MODELS / self._record.name).glob("policy_*/manifest.json"))
        return bool(manifests) and json.loads(manifests[-1].read_text())["status"] == "stopped"

    def _end(self, catalog: Any, state: runs.State, message: str) -> None:
        for shared in ("engine", "learner"):
            with contextlib.suppress(Exception):
                catalog.release(shared)
        self._write(state, message)
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
            self._handler = None

    def _write(self, state: runs.State, message: str) -> None:
        if self._record is not None:
            self.update_record(state=state, message=message)

    def _log(self, name: str) -> None:
        self._handler = log_to_file(self._root / RECORDS / name / "run.log")


class MetricsHooks:
    """Times nodes, prints progress, prunes old states and mirrors metrics into MLflow."""

    def __init__(self) -> None:
        self._root = Path()
        self._mirror: Any = None
        self._progress: Any = None
        self._seconds: dict[str, dict[str, float]] = {}
        self._node_started = 0.0
        self._iteration_started = 0.0
        self._redirect = contextlib.ExitStack()
        self._name = ""
        #: Printed when the run ends, below the lines of the evaluations that they are made of.
        self._tables: list[Any] = []

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Remember where the project is and how MLflow is set up."""
        self._root = Path(context.project_path)
        self._loader = context.config_loader

    @hook_impl(trylast=True)
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Any) -> None:
        """Start the MLflow run and the clock."""
        from rich.console import Console  # noqa: PLC0415

        from starpo.tracking.mlflow_config import parse_mlflow_config  # noqa: PLC0415
        from starpo.tracking.mlflow_mirror import MlflowMirror  # noqa: PLC0415
        from starpo.tracking.progress import IterationProgress  # noqa: PLC0415

        resolved = parameters.current()
        self._name = resolved.names[_RUNLESS.get(resolved.pipeline, "name")]
        self._iteration_started = time.perf_counter()
        self._console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe gets whole tables
        self._progress = IterationProgress(resolved.parameters.run.iterations, self._console)
        hooks = run_hooks()
        if hooks is None or hooks.record is None or not pipeline.nodes:
            return
        if "mlflow" not in self._loader.config_patterns:
            self._loader.config_patterns["mlflow"] = ["mlflow*", "mlflow*/**"]
        self._mirror = MlflowMirror(self._root, parse_mlflow_config(dict(self._loader["mlflow"])))
        with native_output_to(self._log_file()):
            tags = {"starpo.environment": resolved.parameters.environment.name}
            run_id = self._mirror.begin(
                hooks.record,
                resolved.raw,
                tags,
                study=resolved.parameters.run.study,
                parent=self._source_run_id(resolved.names),
            )
        if run_id:
            hooks.update_record(mlflow_run_id=run_id)

    @hook_impl
    def before_node_run(self, node: Any) -> None:
        """Start the node's clock; while it runs, native output goes to the log file."""
        self._node_started = time.perf_counter()
        if node.name.endswith(".rollout"):
            self._progress.begin()
        self._redirect.enter_context(native_output_to(self._log_file()))

    @hook_impl
    def after_node_run(self, node: Any) -> None:
        """Stop the node's clock."""
        self._redirect.close()
        seconds = time.perf_counter() - self._node_started
        iteration, _, name = node.name.rpartition(".")
        self._seconds.setdefault(iteration, {})[name] = seconds

    @hook_impl
    def on_node_error(self, error: Exception) -> None:
        """Give the terminal back."""
        self._redirect.close()

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """React to what was written: progress, MLflow, pruning."""
        if re.fullmatch(r"iter_\d+\.metrics|stage_metrics", dataset_name):
            self._report_iteration(int(data["iteration"]), data)
        elif re.fullmatch(r"iter_\d+\.scored|stage_scored", dataset_name):
            self._report_quarantined(data)
        elif match := re.fullmatch(r"(evaluation|against)__(\w+?)__t([\d_]+?)__(\d+)\.summary", dataset_name):
            kind, suite, temperature, step = match.groups()
            prefix = "against-" if kind == "against" else ""
            self._report_evaluation(f"{prefix}{suite}-t{temperature}", step, data)
        elif match := re.fullmatch(r"(evaluation|against)__(\w+?)__t[\d_]+?__\d+\.turns", dataset_name):
            self._report_played(match.group(1), match.group(2), data)
        elif dataset_name == "evaluation_overview":
            self._report_overview(data)
        elif dataset_name == "rescoring":
            self._report_rescoring(data)
        elif dataset_name.startswith("comparison_"):
            self._report_comparison(data, int(dataset_name.rpartition("_")[2]))
        elif re.fullmatch(r"policy_\d+", dataset_name):
            if dataset_name == "policy_0000":
                self._announce_disk_use()
                self._announce_template()
            self._prune()

    @hook_impl(tryfirst=True)
    def after_pipeline_run(self) -> None:
        """End the MLflow run."""
        self._end("FINISHED")

    @hook_impl(tryfirst=True)
    def on_pipeline_error(self, error: Exception) -> None:
        """End the MLflow run as failed."""
        self._redirect.close()
        self._end("FAILED")

    def interrupted(self) -> None:
        """Ctrl-C or SIGTERM: the MLflow run ends as killed."""
        self._redirect.close()
        self._end("KILLED")

    def _report_iteration(self, iteration: int, metrics: dict[str, Any]) -> None:
        seconds = self._seconds.pop(f"iter_{iteration:04d}", {})
        now = time.perf_counter()
        timings = {f"seconds_{name}": value for name, value in seconds.items()}
        timings |= {key: metrics[key] for key in ("seconds_update", "seconds_sync") if key in metrics}
        timings["seconds_gates"] = _gate_clock().take()
        timings["seconds_iteration"] = now - self._iteration_started
        self._iteration_started = now
        rate = metrics.get("rollout_tokens", 0.0) / max(1e-9, seconds.get("rollout", 0.0))
        shown = metrics | timings | ({"tokens_per_second": rate} if "rollout" in seconds else {})
        self._progress.report(shown)
        for event in metrics.get("monitor_events", []):
            self._console.print(f"monitor: {event}", highlight=False, soft_wrap=True)
        if self._mirror is not None:
            self._mirror.log_iteration(shown, iteration)
        timings["seconds_mirror"] = time.perf_counter() - now
        with (self._root / RECORDS / self._name / "timings.jsonl").open("a") as file:
            file.write(json.dumps({"iteration": iteration} | timings) + "\n")

    def _report_quarantined(self, scored: Any) -> None:
        from starpo.data.quarantine import describe, quarantined  # noqa: PLC0415

        if faults := quarantined(scored):
            iteration = scored["iteration"][0].as_py()
            self._console.print(
                f"iteration {iteration}: quarantined {describe(faults, scored.num_rows)}",
                style="yellow" if self._console.is_terminal else None,
                highlight=False,
                soft_wrap=True,
            )

    def _report_evaluation(self, folder: str, step: str, summary: dict[str, Any]) -> None:
        share = summary.get("success_of_optimum")
        reach = "" if share is None else f", {share:.0%} of the optimum"
        kind = "against" if folder.startswith("against-") else "evaluation"
        self._console.print(
            f"{kind} {summary['suite']} T={summary['temperature']:g} after {summary['iteration']} iterations: "
            f"success {summary['success']:.3f} ({summary['success_low']:.3f} to {summary['success_high']:.3f}){reach}, "
            f"return {summary['return']:.3f}, {summary['prompts']} prompts",
            highlight=False,
            soft_wrap=True,
        )
        self._iteration_started = time.perf_counter()
        if self._mirror is not None:
            table = self._root / "data/07_evaluation" / self._name / folder / f"step_{step}.parquet"
            step_number = int(summary["iteration"])
            self._mirror.log_evaluation(folder, step_number, summary, table)
            self._mirror.log_traces(folder, step_number, table, self._turn_seconds(kind, folder, step))

    def _turn_seconds(self, kind: str, folder: str, step: str) -> dict[tuple[int, int], list[float]]:
        """Clock times of an evaluation's turns by (group, member)."""
        suite = folder.removeprefix("against-")
        file = self._root / RECORDS / self._name / "turn_seconds" / f"{kind}_{suite}_{step}.json"
        if not file.exists():
            return {}
        named = {key.partition("."): each for key, each in json.loads(file.read_text()).items()}
        return {(int(group), int(member)): each for (group, _, member), each in named.items()}

    def _report_played(self, kind: str, suite: str, turns: Any) -> None:
        """In an evaluation alone everything is played before anything is judged."""
        if parameters.current().pipeline == "evaluate":
            whose = " by the policy to compare with" if kind == "against" else ""
            temperature = turns["temperature"][0].as_py() if turns.num_rows else float("nan")
            self._console.print(
                f"played {suite} T={temperature:g}{whose}: {turns.num_rows:,} turns", highlight=False
            )

    def _report_overview(self, data: dict[str, Any]) -> None:
        from starpo.tracking.evaluation_table import evaluation_table, failure_table  # noqa: PLC0415

        self._tables.append(evaluation_table(data["evaluations"], data["policy"]))
        self._tables.append(failure_table(data["evaluations"]))

    def _report_rescoring(self, data: dict[str, Any]) -> None:
        from starpo.tracking.rescoring_table import rescoring_table  # noqa: PLC0415

        self._tables.append(rescoring_table(data["iterations"]))

    def _report_comparison(self, data: dict[str, Any], last: int) -> None:
        from starpo.tracking.progress import before_after_table  # noqa: PLC0415

        comparisons = data["comparisons"]
        self._tables.append(before_after_table(comparisons, data.get("between")))
        if self._mirror is not None:
            self._mirror.log_comparison(comparisons, last)
            if "between" in data:  # policies of other runs, which own them
                return
            self._log_policies(last)

    def _log_policies(self, last: int) -> None:
        """First and last policy as models in MLflow; the last one of a run that was not stopped is the candidate."""
        from starpo.learning.policy import MANIFEST, Policy  # noqa: PLC0415

        for iteration in (0, last):
            folder = self._root / MODELS / self._name / f"policy_{iteration:04d}"
            if (folder / MANIFEST).exists():
                policy = Policy.open(folder)
                self._mirror.log_policy(policy.model_directory, iteration, policy.harness())
                if iteration == last and policy.manifest["status"] != "stopped":
                    environment = parameters.current_parameters().environment.name
                    self._mirror.register_candidate(environment, self._name, last)

    def _announce_template(self) -> None:
        from starpo.agent.template_report import inspect_template  # noqa: PLC0415
        from starpo.learning.policy import load_tokenizer  # noqa: PLC0415

        report = inspect_template(load_tokenizer(self._root / MODELS / self._name / "policy_0000"))
        self._console.print(report.short(), highlight=False, markup=False, soft_wrap=True)

    def _announce_disk_use(self) -> None:
        from starpo.learning.retention import expected_bytes  # noqa: PLC0415

        folder = self._root / MODELS / self._name / "policy_0000"
        size = expected_bytes(folder, parameters.current_parameters())
        self._console.print(
            f"expected disk use of this run: at most about {size / 2**20:,.0f} MiB", highlight=False
        )

    def _prune(self) -> None:
        from starpo.learning.retention import evaluated_iterations, prune  # noqa: PLC0415

        current = parameters.current_parameters()
        evaluated = set(evaluated_iterations(current))
        models = self._root / MODELS / self._name
        good = None
        if current.monitor.action == "roll_back":
            newest = max(models.glob("policy_*/manifest.json"))
            good = json.loads(newest.read_text()).get("monitor", {}).get("good")
        prune(models, keep_last=current.run.keep_last, keep_models=evaluated, keep_state=good)

    def _end(self, status: Any) -> None:
        for table in self._tables:
            self._console.print(table)
        self._tables = []
        self._publish_data_docs()
        if self._mirror is not None:
            if status == "FINISHED":
                self._mirror.log_data(self._name)
            self._mirror.end(status)
            self._mirror = None

    def _publish_data_docs(self) -> None:
        """Build the Data Docs from what the suites said, once, however the run ended."""
        from starpo.data.expectations.data_docs import build_data_docs  # noqa: PLC0415

        started = time.perf_counter()
        index = build_data_docs(self._root, self._name)
        if index is None:
            return
        gates, docs = _gate_clock().total, time.perf_counter() - started
        self._console.print(
            f"Data Docs: {index.relative_to(self._root)} (gates {gates:.1f} s, Data Docs {docs:.1f} s)",
            highlight=False,
            soft_wrap=True,
        )
        if self._mirror is not None:
            self._mirror.log_folder(index.parent, "data_docs")

    def _source_run_id(self, names: dict[str, str]) -> str | None:
        """MLflow run of the training that a stage alone works on."""
        source = names["source"]
        if source == names["name"] or not runs.record_path(self._root, source).exists():
            return None
        return runs.read_record(self._root, source).mlflow_run_id

    def _log_file(self) -> Path:
        return self._root / RECORDS / self._name / "run.log"


def run_hooks() -> RunHooks | None:
    """The registered instance of :class:`RunHooks`."""
    from kedro.framework.project import settings  # noqa: PLC0415

    return next((hook for hook in settings.HOOKS if isinstance(hook, RunHooks)), None)


def interrupt_hooks() -> None:
    """Tell all hooks that the run was interrupted."""
    from kedro.framework.project import settings  # noqa: PLC0415

    for hook in settings.HOOKS:
        hook.interrupted()


def _gate_clock() -> Clock:
    """The clock of all gates."""
    from starpo.data.expectations.gate import Gate  # noqa: PLC0415

    return Gate.clock


def _use_threads(count: int | None) -> None:
    import torch  # noqa: PLC0415

    if count is not None:
        torch.set_num_threads(count)
    # vLLM goes down to one thread unless this is set when it is imported.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))


def _git_commit(root: Path) -> str | None:
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("-dirty" if dirty else "")

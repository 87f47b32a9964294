"""What a run prints: a line per iteration and evaluation, tables at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.clock import ClockHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.terminal.console import console
from starpo.store.layout import Played, parse_entry

if TYPE_CHECKING:
    from rich.table import Table

    from starpo.app.terminal.progress import IterationProgress


def update_troubles(metrics: dict[str, Any]) -> list[str]:
    """What went wrong in an iteration's update without ending the run, as sentences."""
    iteration, lines = metrics["iteration"], []
    if metrics.get("update_retries"):
        lines.append(
            f"iteration {iteration}: the update ran out of memory and was done again with half of "
            "learner.micro_batch_tokens"
        )
    if count := int(metrics.get("bad_steps", 0)):
        steps = "1 optimizer step was" if count == 1 else f"{count} optimizer steps were"
        lines.append(f"iteration {iteration}: {steps} not taken, the first: {metrics['bad_step_cause']}")
    return lines


class TerminalHooks:
    """Prints progress and results."""

    def __init__(self, run: RunRecordHooks, clock: ClockHooks) -> None:
        self._run = run
        self._clock = clock
        self._progress: IterationProgress | None = None
        #: Printed when the run ends, below the lines of the evaluations that they are made of.
        self._tables: list[Table] = []

    @hook_impl
    def before_pipeline_run(self) -> None:
        """Set out the line of an iteration."""
        from starpo.app.terminal.progress import IterationProgress  # noqa: PLC0415

        self._progress = IterationProgress(self._run.resolved.parameters.run.iterations, console())

    @hook_impl
    def before_node_run(self, node: Any) -> None:
        """Start the clock of the time left."""
        if self._progress is not None and node.name.endswith(".rollout"):
            self._progress.begin()

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Say what was written."""
        entry = parse_entry(dataset_name)
        if dataset_name == "evaluation_overview":
            self._report_overview(data)
        elif dataset_name == "rescoring":
            self._report_rescoring(data)
        elif entry is None:
            return
        elif entry.kind == "metrics":
            self._report_iteration(data)
        elif entry.kind == "summary" and entry.played is not None:
            self._report_evaluation(entry.played, data)
        elif entry.kind == "turns" and entry.played is not None:
            self._report_played(entry.played, data)
        elif entry.kind == "comparison":
            self._report_comparison(data)
        elif entry.kind == "policy" and entry.number == 0:
            self._announce_disk_use()
            self._announce_template()

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Print the tables."""
        self._print_tables()

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Print the tables that there are."""
        self._print_tables()

    def interrupted(self) -> None:
        """Print the tables that there are."""
        self._print_tables()

    def _print_tables(self) -> None:
        for table in self._tables:
            console().print(table)
        self._tables = []

    def _report_iteration(self, metrics: dict[str, Any]) -> None:
        if self._progress is not None:
            self._progress.report(metrics | self._clock.iteration)
        for line in update_troubles(metrics):
            console().print(line, highlight=False, markup=False, soft_wrap=True)
        for event in metrics.get("monitor_events", []):
            console().print(f"monitor: {event}", highlight=False, soft_wrap=True)

    def _report_evaluation(self, played: Played, summary: dict[str, Any]) -> None:
        share = summary.get("success_of_optimum")
        reach = "" if share is None else f", {share:.0%} of the optimum"
        kind = "against" if played.against else "evaluation"
        console().print(
            f"{kind} {summary['suite']} T={summary['temperature']:g} after {summary['iteration']} iterations: "
            f"success {summary['success']:.3f} ({summary['success_low']:.3f} to {summary['success_high']:.3f}){reach}, "
            f"return {summary['return']:.3f}, {summary['prompts']} prompts",
            highlight=False,
            soft_wrap=True,
        )

    def _report_played(self, played: Played, turns: Any) -> None:
        """In an evaluation alone everything is played before anything is judged."""
        if self._run.resolved.pipeline == "evaluate":
            whose = " by the policy to compare with" if played.against else ""
            console().print(
                f"played {played.suite} T={played.temperature:g}{whose}: {turns.num_rows:,} turns",
                highlight=False,
            )

    def _report_overview(self, data: dict[str, Any]) -> None:
        from starpo.app.terminal.evaluation_table import evaluation_table, failure_table  # noqa: PLC0415

        self._tables.append(evaluation_table(data["evaluations"], data["policy"]))
        self._tables.append(failure_table(data["evaluations"]))

    def _report_rescoring(self, data: dict[str, Any]) -> None:
        from starpo.app.terminal.rescoring_table import rescoring_table  # noqa: PLC0415

        self._tables.append(rescoring_table(data["iterations"]))

    def _report_comparison(self, data: dict[str, Any]) -> None:
        from starpo.app.terminal.progress import before_after_table  # noqa: PLC0415

        self._tables.append(before_after_table(data["comparisons"], data.get("between")))

    def _announce_disk_use(self) -> None:
        from starpo.store.retention import expected_bytes  # noqa: PLC0415

        size = expected_bytes(self._run.paths.policy(0), self._run.resolved.parameters)
        console().print(
            f"expected disk use of this run: at most about {size / 2**20:,.0f} MiB", highlight=False
        )

    def _announce_template(self) -> None:
        from starpo.agent.template_report import inspect_template  # noqa: PLC0415
        from starpo.store.policies import load_tokenizer  # noqa: PLC0415

        report = inspect_template(load_tokenizer(self._run.paths.policy(0)))
        console().print(report.short(), highlight=False, markup=False, soft_wrap=True)

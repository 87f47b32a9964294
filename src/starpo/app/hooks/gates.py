"""What the gates found: quarantined trajectories as they come, the Data Docs at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.terminal.console import console
from starpo.store.layout import parse_entry

if TYPE_CHECKING:
    from starpo.gates.gate import Clock


class GateHooks:
    """Prints what was quarantined, and builds the Data Docs from what the suites said, however the run ended."""

    def __init__(self, run: RunRecordHooks) -> None:
        self._run = run

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Say which trajectories of an iteration are not learned from."""
        entry = parse_entry(dataset_name)
        if entry is None or entry.kind != "scored":
            return
        from starpo.gates.quarantine import describe, quarantined  # noqa: PLC0415

        if faults := quarantined(data):
            console().print(
                f"iteration {data['iteration'][0].as_py()}: quarantined {describe(faults, data.num_rows)}",
                style="yellow" if console().is_terminal else None,
                highlight=False,
                soft_wrap=True,
            )

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Build the Data Docs."""
        self._publish()

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Build the Data Docs, which may say why."""
        self._publish()

    def interrupted(self) -> None:
        """Build the Data Docs of what there is."""
        self._publish()

    def _publish(self) -> None:
        from starpo.gates.data_docs import build_data_docs  # noqa: PLC0415

        started = time.perf_counter()
        try:
            index = build_data_docs(self._run.root, self._run.name)
        except OSError as error:  # the pages are no reason to fail, and the run's end has more to do
            console().print(f"Data Docs: not built ({error})", highlight=False, soft_wrap=True)
            return
        if index is None:
            return
        gates, docs = gate_clock().total, time.perf_counter() - started
        console().print(
            f"Data Docs: {index.relative_to(self._run.root)} (gates {gates:.1f} s, Data Docs {docs:.1f} s)",
            highlight=False,
            soft_wrap=True,
        )


def gate_clock() -> Clock:
    """The clock of all gates."""
    from starpo.gates.gate import Gate  # noqa: PLC0415

    return Gate.clock

"""How long nodes and iterations take: ``data/00_runs/<run>/timings.jsonl``."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from typing import Any

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.gates import gate_clock
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.store.layout import iteration_name, parse_entry


class ClockHooks:
    """Times nodes and adds them up for each iteration."""

    def __init__(self, run: RunRecordHooks) -> None:
        self._run = run
        self._nodes: dict[str, dict[str, float]] = {}
        self._node_started = 0.0
        self._iteration_started = 0.0
        self.iteration: dict[str, float] = {}
        """Times of the iteration whose metrics are being reported, s, and ``tokens_per_second``."""

    @hook_impl
    def before_pipeline_run(self) -> None:
        """Start the first iteration's clock."""
        self._iteration_started = time.perf_counter()

    @hook_impl
    def before_node_run(self) -> None:
        """Start the node's clock."""
        self._node_started = time.perf_counter()

    @hook_impl
    def after_node_run(self, node: Any) -> None:
        """Stop the node's clock."""
        seconds = time.perf_counter() - self._node_started
        iteration, _, name = node.name.rpartition(".")
        self._nodes.setdefault(iteration, {})[name] = seconds

    @hook_impl(wrapper=True)
    def after_dataset_saved(self, dataset_name: str, data: Any) -> Generator[None, Any, Any]:
        """Have the times ready for the hooks that report an iteration, and write them with those hooks' own."""
        from starpo.mirror.stored import tokens_per_second  # noqa: PLC0415 - needs what MLflow's hooks need

        entry = parse_entry(dataset_name)
        if entry is not None and entry.kind == "summary":
            self._iteration_started = time.perf_counter()  # evaluations belong to no iteration
        if entry is None or entry.kind != "metrics":
            return (yield)
        now = time.perf_counter()
        nodes = self._nodes.pop(iteration_name(data["iteration"]), {})
        timings = {f"seconds_{name}": value for name, value in nodes.items()}
        timings |= {key: data[key] for key in ("seconds_update", "seconds_sync") if key in data}
        timings["seconds_gates"] = gate_clock().take()
        timings["seconds_iteration"] = now - self._iteration_started
        self._iteration_started = now
        self.iteration = timings | tokens_per_second(data, timings)
        answers = yield
        timings["seconds_mirror"] = time.perf_counter() - now
        with self._run.paths.timings.open("a") as file:
            file.write(json.dumps({"iteration": int(data["iteration"])} | timings) + "\n")
        return answers

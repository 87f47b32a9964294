"""Ends a run that hangs (``run.step_limit_seconds``) and says where it did."""

from __future__ import annotations

import faulthandler
import os
from typing import Any

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.watchdog import Watchdog
from starpo.heartbeat import beat


class WatchdogHooks:
    """Watches from the first node to the pipeline's end; a node's begin and end are signs of life."""

    def __init__(self, run: RunRecordHooks) -> None:
        self._run = run
        self._watchdog: Watchdog | None = None
        self._terminal = -1
        self._node = ""

    @hook_impl
    def before_node_run(self, node: Any) -> None:
        """A node begins; at the first one begin to watch, where there is a limit."""
        self._node = node.name
        beat()
        limit = self._run.resolved.parameters.run.step_limit_seconds
        if limit is not None and self._watchdog is None:
            self._terminal = os.dup(2)  # which goes to the log while a node runs
            self._watchdog = Watchdog(limit, self._last_words)
            self._watchdog.start()

    @hook_impl
    def after_node_run(self) -> None:
        """It has ended; what follows is its results' way to the disk."""
        beat()

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Watch no longer."""
        self._stop()

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Watch no longer."""
        self._stop()

    def interrupted(self) -> None:
        """Watch no longer."""
        self._stop()

    def _stop(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
            os.close(self._terminal)

    def _last_words(self, seconds: float) -> None:
        """On the terminal, in the log with all threads' stacks, and in the run's record."""
        limit = self._run.resolved.parameters.run.step_limit_seconds
        what = (
            f"{_place(self._node)}: no engine step, no micro-batch and no node's end for {seconds:.0f} s "
            f"(run.step_limit_seconds = {limit:g})"
        )
        text = (
            f"Error: {what}, so the process was ended; {self._run.log_file} says where it hung. Nothing stored is "
            "lost: the same command goes on, and with --supervise by itself. Raise run.step_limit_seconds if "
            "the work is that slow; environment.workers = 1 or more ends a hanging environment's episode alone\n"
        )
        os.write(self._terminal, text.encode())
        with self._run.log_file.open("a") as log:
            log.write(text)
            log.flush()
            faulthandler.dump_traceback(log, all_threads=True)
        self._run.update(state="failed", message=what)


def _place(node: str) -> str:
    """``iter_0003.rollout`` to ``iteration 3, node rollout``."""
    where, _, name = node.rpartition(".")
    number = where.removeprefix("iter_")
    return f"iteration {int(number)}, node {name}" if number.isdigit() else f"node {name}"

"""While a node runs, what libraries print goes to the run's log file."""

from __future__ import annotations

import contextlib

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.terminal.quiet import native_output_to


class NativeOutputHooks:
    """Takes the terminal away from nodes and gives it back, however they end."""

    def __init__(self, run: RunRecordHooks) -> None:
        self._run = run
        self._redirect = contextlib.ExitStack()

    # Last, so that no other hook's words of this node's beginning are lost.
    @hook_impl(trylast=True)
    def before_node_run(self) -> None:
        """Send standard output and standard error to the log file."""
        self._redirect.enter_context(native_output_to(self._run.log_file))

    @hook_impl
    def after_node_run(self) -> None:
        """Give the terminal back."""
        self._redirect.close()

    @hook_impl
    def on_node_error(self) -> None:
        """Give the terminal back."""
        self._redirect.close()

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Give the terminal back."""
        self._redirect.close()

    def interrupted(self) -> None:
        """Give the terminal back."""
        self._redirect.close()

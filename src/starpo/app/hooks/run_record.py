"""Which run this is, that it may go on, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.parameters import ParametersHooks
from starpo.app.mistakes import user_mistake
from starpo.app.terminal.quiet import log_to_file
from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.redaction import redact
from starpo.store import runs
from starpo.store.layout import Layer, RunPaths
from starpo.store.lease import Lease
from starpo.store.machine import this_machine

#: Pipelines without a run of their own, because they build what all runs share or only read: which of the names
#: in ``${run:…}`` their log goes to.
_RUNLESS = {"base_policy": "base", "report": "report"}


class RunRecordHooks:
    """Guards the run's identity and records its state; the other hooks ask here which run it is."""

    def __init__(self, parameters: ParametersHooks) -> None:
        self._parameters = parameters
        self.root = Path()
        """The project's folder."""
        self.name = ""
        """Folder name in every data layer: the run's, or what a pipeline without a run builds."""
        self.record: runs.RunRecord | None = None
        """The present run, once begun; a pipeline without a run has none."""
        self._handler: logging.Handler | None = None
        self._lease: Lease | None = None

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Remember where the project is."""
        self.root = Path(context.project_path)

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any]) -> None:
        """Open or continue the run's record; refuse changed parameters and damaged states before any work."""
        from rich.console import Console  # noqa: PLC0415

        from starpo.app.preflight import check_before_work, check_environment  # noqa: PLC0415

        resolved = self.resolved
        self.name = resolved.names[_RUNLESS.get(resolved.pipeline, "name")]
        _use_threads(resolved.parameters.run.threads)
        if resolved.pipeline not in _RUNLESS:
            record = self._begun(resolved)
            memory = check_before_work(self.root, resolved)
            if memory is not None:
                Console().print(memory.table(), highlight=False)
            self._lease = Lease(self.paths.lease)
            self._lease.begin()
            self.record = record
            runs.write_record(self.root, record)
        elif resolved.pipeline == "base_policy":
            check_environment("environment", resolved.parameters.environment)
        self._handler = log_to_file(self.log_file)

    @hook_impl(trylast=True)
    def after_pipeline_run(self, catalog: Any) -> None:
        """The run is complete."""
        self._end(catalog, "stopped" if self._stopped() else "finished", "")

    @hook_impl(trylast=True)
    def on_pipeline_error(self, error: Exception, catalog: Any) -> None:
        """The run failed; what it wrote stays."""
        cause = user_mistake(error) or f"{type(error).__name__}: {error}"
        self._end(catalog, "failed", redact(cause).partition("\n")[0])

    def interrupted(self) -> None:
        """Ctrl-C or SIGTERM, which Kedro's hooks do not see."""
        if self.record is not None and self.record.state == "running":
            self.update(state="killed", message="interrupted")
        self._give_up_lease()

    def update(self, **fields: Any) -> None:
        """Change fields of the present run's record."""
        if self.record is not None:
            self.record = self.record.model_copy(update=fields)
            runs.write_record(self.root, self.record)

    @property
    def resolved(self) -> Resolved:
        """What the present command works with."""
        assert self._parameters.resolved is not None, "asked before the context was created"
        return self._parameters.resolved

    @property
    def paths(self) -> RunPaths:
        """Where its files lie."""
        return RunPaths(self.root, self.name)

    @property
    def log_file(self) -> Path:
        """Where libraries' messages go."""
        return self.paths.log

    def _begun(self, resolved: Resolved) -> runs.RunRecord:
        """The record of the run that these parameters begin or go on with."""
        machine = this_machine()
        if self.paths.record.exists():
            return runs.continued(self.root, runs.read_record(self.root, self.name), resolved.raw, machine)
        return runs.new_record(
            self.name,
            resolved.pipeline,
            resolved.raw,
            git_commit=_git_commit(self.root),
            forked_from=resolved.parameters.run.fork_from,
            machines=(machine,),
        )

    def _stopped(self) -> bool:
        if self.record is None:
            return False
        from starpo.store.retention import stored_policies  # noqa: PLC0415

        policies = stored_policies(self.paths.folder(Layer.MODELS))
        return bool(policies) and policies[-1].manifest["status"] == "stopped"

    def _end(self, catalog: Any, state: runs.State, message: str) -> None:
        for shared in ("engine", "learner"):
            with contextlib.suppress(Exception):
                catalog.release(shared)
        try:
            self.update(state=state, message=message)
        except UserError:
            if (
                state != "failed"
            ):  # else what failed is said, and without its process the run counts as interrupted
                raise
        finally:
            self._give_up_lease()
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
            self._handler = None

    def _give_up_lease(self) -> None:
        if self._lease is not None:
            self._lease.end()
            self._lease = None


def _use_threads(count: int | None) -> None:
    import torch  # noqa: PLC0415

    if count is not None:
        torch.set_num_threads(count)
    # vLLM goes down to one thread unless this is set when it is imported.
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())


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

"""The copy of a run that goes on: MLflow's failures are said at once, tried again and made good, and stop nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig
from starpo.mirror.credentials import FILE, password_in
from starpo.mirror.faults import cause
from starpo.mirror.mirror import EndStatus, MlflowMirror
from starpo.mirror.store import open_store, reopened
from starpo.mirror.store_of_project import project_config
from starpo.mirror.stored import log_ending, log_stored
from starpo.redaction import redact
from starpo.store.layout import RunPaths
from starpo.store.runs import RunRecord

logger = logging.getLogger(__name__)

PATIENCE = 60.0
"""Longest that a training waits in all for a store that fails, s, but for its last try and the one that goes over."""


class LiveMirror:
    """Writes to MLflow while a run goes on. No method raises anything but an interruption.

    After a failure nothing is written until :meth:`write` is called with ``again``; then the store is opened anew.
    Whenever it is opened everything on disk is written, which changes nothing where it is there already.

    Args:
        paths: the run's files.
        config: ``mlflow.yml``.
        record: gives the run's present record.
        remember: takes MLflow's id of the run for that record.
        parent: MLflow run of the training that a stage alone works on.
        env: Kedro environment of the run.
    """

    def __init__(
        self,
        paths: RunPaths,
        config: MlflowConfig,
        record: Callable[[], RunRecord],
        remember: Callable[[str], None],
        parent: str | None = None,
        env: str | None = None,
    ) -> None:
        self._paths = paths
        self._config = config
        self._record = record
        self._remember = remember
        self._parent = parent
        self._env = env
        self._mirror: MlflowMirror | None = None
        self._failing = False
        self._waited = 0.0
        self.news: list[str] = []
        """Sentences that a person has yet to see; whoever shows them empties it."""

    @property
    def _place(self) -> str:
        return redact(self._config.server.mlflow_tracking_uri)

    def begin(self) -> None:
        """Start the MLflow run, or continue it with what it misses of an interrupted run."""
        if password_in(self._config.server.mlflow_tracking_uri):
            self.news.append(
                f"mlflow.yml: mlflow_tracking_uri {self._place} holds a password; move it to {FILE}, which git "
                "ignores, as mlflow: {username: …, password: …}"
            )
        self._guarded(lambda: self._open(reopen=False))

    def write(self, act: Callable[[MlflowMirror], None], *, again: bool = False) -> None:
        """Write something that is on disk by now.

        Args:
            act: writes it.
            again: after a failure, try to write all that is on disk.
        """
        mirror = self._mirror
        if mirror is not None:
            self._guarded(lambda: self._checked(mirror, act))
        elif again and self._waited < PATIENCE:
            self._guarded(lambda: self._open(reopen=True))

    def end(self, status: EndStatus) -> None:
        """Complete and end the MLflow run. An interrupted program waits for no store that failed."""
        if self._mirror is None and status != "KILLED":
            self._guarded(lambda: self._open(reopen=True))
        mirror = self._mirror
        if mirror is not None:
            self._guarded(lambda: self._checked(mirror, lambda each: self._ended(each, status)))
        if self._mirror is None:
            self.news.append(
                f"MLflow ({self._place}) lacks a part of this run; when it works again: {self._command()}"
            )
        self._mirror = None

    def _ended(self, mirror: MlflowMirror, status: EndStatus) -> None:
        log_ending(mirror, self._paths, complete=status == "FINISHED")
        mirror.end(status)

    def _open(self, *, reopen: bool) -> None:
        record = self._record()
        store = (reopened if reopen else open_store)(self._paths.root, self._config)
        mirror = MlflowMirror(self._paths.root, self._config, store, record, parent=self._parent)
        try:
            if mirror.run_id != record.mlflow_run_id:
                self._remember(mirror.run_id)
            log_stored(mirror, self._paths, record)
        except BaseException:
            mirror.abandon()
            raise
        self._mirror = mirror
        if self._failing:
            self._failing = False
            self.news.append(f"MLflow ({self._place}) works again; what it had missed is written")

    def _checked(self, mirror: MlflowMirror, act: Callable[[MlflowMirror], None]) -> None:
        mirror.check()
        act(mirror)

    def _guarded(self, act: Callable[[], None]) -> None:
        started = time.monotonic()
        try:
            act()
        except Exception as error:
            self._waited += time.monotonic() - started
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        logger.info("MLflow failed", exc_info=error)  # the traceback is for the log file
        if self._mirror is not None:
            self._mirror.abandon()
            self._mirror = None
        if not self._failing:
            self._failing = True
            self.news.append(
                f"MLflow ({self._place}): {redact(cause(error))}. The run goes on and its files are complete; what "
                "MLflow misses is written at an evaluation or at the end, if it works by then, or later by: "
                f"{self._command()}"
            )

    def _command(self) -> str:
        """What writes this run into the same store later."""
        command = f"starpo runs mirror {self._paths.run}"
        try:
            same = project_config(self._paths.root).server == self._config.server
        except UserError:
            same = False
        return command if same or self._env is None else f"{command} --env={self._env}"

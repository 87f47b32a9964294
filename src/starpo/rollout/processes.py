"""Worker processes as their parent sees them: started by ``exec``, asked over a pipe, never outliving their parent.

Not ``multiprocessing``, whose children import the main module first: that of a training would bring torch and Kedro
along.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from starpo.config.environment import EnvironmentConfig
from starpo.errors import UserError
from starpo.rollout import call_progress
from starpo.rollout.call_progress import Progress

#: Seconds that a process gets to end by itself.
FAREWELL_SECONDS: Final = 2.0
#: Looks at a silent process per step limit: a call is stopped at most a tenth of it late.
LOOKS: Final = 10
#: Calls that may take as long as a process's start.
SLOW: Final = frozenset({"build", "copy", "close"})
#: What pickling raises on what nobody can import or send.
UNSENDABLE: Final = (pickle.PicklingError, AttributeError, TypeError)


class EnvironmentLost(RuntimeError):
    """An environment's process died, or a call took longer than its limit."""


class Worker:
    """A process that answers requests in their order; ``greet`` it before the first.

    Args:
        build: of the object that answers, called in the process; see :mod:`starpo.rollout.worker`.
        config: limits of time.
    """

    def __init__(self, build: Callable[..., Any], config: EnvironmentConfig) -> None:
        self._build, self._config = build, config
        self.waiting: list[tuple[Any, Any]] = []
        """(tag, request) without an answer, in order."""
        self._answered, self._since = 0, time.monotonic()
        self.noted = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the process
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        numbers = [str(each) for each in (theirs.fileno(), self.noted.fileno(), os.getpid())]
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "starpo.rollout.worker", *numbers],
                pass_fds=[theirs.fileno(), self.noted.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path},
            )
        finally:
            theirs.close()
        self.connection = Connection(ours.detach())

    def greet(self, environments: str = "") -> None:
        """Wait until it is ready; ``environments`` names in messages what its object is made of."""
        limit = self._config.start_limit_seconds
        try:
            self.connection.send(self._build)
            if not self.connection.poll(limit):
                raise UserError(
                    f"environment.start_limit_seconds = {limit:g}: a worker process did not start in that time; "
                    "raise the limit, or see what the run's log says"
                )
            self.connection.recv()
        except UNSENDABLE as error:
            raise unsendable(environments, error) from None
        except (EOFError, OSError):
            raise UserError(
                f"environment.workers: a worker process ended at its start (exit code {self.popen.wait()}); the run's "
                "log says why. With workers = 0 environments run in this process"
            ) from None

    def ask(self, requests: Sequence[tuple[Any, Any]]) -> None:
        """Send (tag, request) pairs, nothing else waiting. Raises ``EnvironmentLost``, and what pickling raises."""
        self.waiting = list(requests)
        self._since = time.monotonic()
        try:
            self.connection.send([request for _, request in requests])
        except OSError:
            raise self._died() from None

    def answer(self) -> Any:
        """The next answer, waited for; raises what :meth:`take` raises."""
        while (taken := self.take()) is None:
            self.connection.poll(self.patience())
        return taken[2]

    def take(self) -> tuple[Any, Any, Any] | None:
        """(tag, request, answer) of the next answer; None if it is not there yet.

        Raises ``EnvironmentLost`` where the process died or its present call takes too long.
        """
        try:
            if self.connection.poll():
                answer = self.connection.recv()
                self._answered, self._since = self._answered + 1, time.monotonic()
                return (*self.waiting.pop(0), answer)
        except (EOFError, OSError):
            raise self._died() from None
        call = self.present_call()
        name, limit = self._limit(call)
        if time.monotonic() > call.began + limit:
            self.popen.kill()
            self.popen.wait()
            raise EnvironmentLost(f"{call.what} took longer than {limit:g} s (environment.{name})")
        return None

    def patience(self) -> float:
        """Seconds until it should be looked at again."""
        call = self.present_call()
        left = call.began + self._limit(call)[1] - time.monotonic()
        return max(0.0, min(left, self._config.step_limit_seconds / LOOKS))

    def present_call(self) -> Progress:
        """What it is doing, or was doing when it died."""
        noted = call_progress.read(self.noted.fileno())
        if noted is None or noted.request != self._answered:
            return Progress(self._answered, "build", None, self._since)
        return noted

    def _limit(self, call: Progress) -> tuple[str, float]:
        name = "start_limit_seconds" if call.what in SLOW else "step_limit_seconds"
        return name, getattr(self._config, name)

    def _died(self) -> EnvironmentLost:
        code = self.popen.wait()
        return EnvironmentLost(f"the worker process died in {self.present_call().what} (exit code {code})")


def unsendable(environments: str, error: Exception) -> UserError:
    """What to say where an environment's recipe cannot be pickled."""
    return UserError(
        f"environment {environments}: it cannot be sent to a worker process ({error}); name it as module:Class or by "
        "an entry point, with plain arguments, or set environment.workers = 0"
    )


def reap(workers: list[Worker]) -> None:
    """End all of ``workers`` and empty the list: an idle one ends by itself when its pipe closes."""
    for worker in workers:
        if worker.waiting:
            worker.popen.kill()
        with contextlib.suppress(OSError):
            worker.connection.close()
    for worker in workers:
        try:
            worker.popen.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            worker.popen.kill()
            worker.popen.wait()
        worker.noted.close()
    workers.clear()

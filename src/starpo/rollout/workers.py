"""Environments in worker processes: a crash, a hang or an exit there ends one episode and nothing else.

Every episode lives in the process ``number % N``; a process does its requests in their order, all processes at
once, and answers are handed back in the order of the requests. Nothing depends on which process is faster, so
results are those of ``workers = 0``, byte for byte.

A process that dies or exceeds a limit is replaced. The request that it was working on gets the error; its other
episodes are built anew from their seeds and brought to where they were by doing their actions again, which works
because an environment is a function of its seeds and actions.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from starpo.config.environment import EnvironmentConfig
from starpo.environments.contract import ContractError
from starpo.errors import UserError
from starpo.rollout.processes import reap, start
from starpo.rollout.stage import Act, Draw, Failure, Leave, Open, Opening, Outcome, Reading, Request


@dataclass
class _Process:
    """One worker and what it was asked."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    queue: list[tuple[int | None, Request]] = field(default_factory=list)
    """(position of the answer, request) in order; None: a replay that nobody asked for."""
    partial: Outcome | None = None
    """The present turn as far as it got."""
    deadline: float = float("inf")
    """Monotonic seconds at which the present call has taken too long."""
    doing: str = "start"
    """Kind of the present call."""


class WorkerPool:
    """``config.workers`` processes, started at first use; see :class:`starpo.rollout.stage.Environments`."""

    def __init__(self, config: EnvironmentConfig, reading: Reading) -> None:
        self._config = config
        self._reading = reading
        self._processes: list[_Process] = []
        self._history: dict[int, Open] = {}
        self._broken: dict[int, str] = {}
        weakref.finalize(self, _end, self._processes)

    def answer(self, requests: Sequence[Request]) -> list[Any]:
        self._start()
        answers: dict[int, Any] = {}
        for position, request in enumerate(requests):
            if request.number in self._broken and isinstance(request, Act):
                answers[position] = Outcome(error=self._broken[request.number])
            else:
                self._of(request.number).queue.append((position, request))
        try:
            for process in self._processes:
                self._send(process)
            while busy := [process for process in self._processes if process.queue]:
                timeout = max(0.0, min(process.deadline for process in busy) - time.monotonic())
                wait([process.connection for process in busy], timeout)
                for process in busy:
                    self._listen(process, answers)
        except BaseException:  # an interruption too: half-answered pipes are of no further use
            self._end_all()
            raise
        return [answers[position] for position in range(len(requests))]

    def clear(self) -> None:
        self._history.clear()
        self._broken.clear()
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.connection.send("clear")

    def close(self) -> None:
        self._end_all()

    def _start(self) -> None:
        if self._processes:
            return
        try:
            for _ in range(self._config.workers):
                self._processes.append(self._spawn())
            for process in self._processes:
                self._greet(process)
        except BaseException:
            self._end_all()
            raise

    def _spawn(self) -> _Process:
        return _Process(*start("starpo.rollout.worker"))

    def _greet(self, process: _Process) -> None:
        """Wait until the process is ready."""
        limit = self._config.start_limit_seconds
        try:
            process.connection.send(self._reading)
            if not process.connection.poll(limit):
                raise UserError(
                    f"environment.start_limit_seconds = {limit:g}: a worker process did not start in that time; "
                    "raise the limit, or see what the run's log says"
                )
            process.connection.recv()
        except (EOFError, OSError):
            code = process.popen.wait()
            raise UserError(
                f"environment.workers: a worker process ended at its start (exit code {code}); the run's log says "
                "why. With workers = 0 environments run in this process"
            ) from None

    def _send(self, process: _Process) -> None:
        if not process.queue:
            return
        process.partial = None
        self._clock(process, "build")
        try:
            process.connection.send([request for _, request in process.queue])
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            names = sorted({r.task.label for _, r in process.queue if isinstance(r, Draw | Open)})
            raise UserError(
                f"environment {', '.join(names)}: it cannot be sent to a worker process ({error}); name it as "
                "module:Class or by an entry point, with plain arguments, or set environment.workers = 0"
            ) from None
        except OSError:
            self._lost(process, {}, "")  # it died while idle: nobody's episode is to blame

    def _listen(self, process: _Process, answers: dict[int, Any]) -> None:
        """Take what the process says; deal with its silence."""
        try:
            while process.queue and process.connection.poll():
                self._take(process, process.connection.recv(), answers)
        except (EOFError, OSError):
            code = process.popen.wait()
            self._lost(process, answers, f"the worker process died in {process.doing} (exit code {code})")
            return
        if process.queue and time.monotonic() > process.deadline:
            name, limit = self._limit(process.doing)
            self._lost(
                process,
                answers,
                f"{process.doing} took longer than {limit:g} s (environment.{name})",
                kill=True,
            )

    def _take(self, process: _Process, message: tuple[str, Any, Any], answers: dict[int, Any]) -> None:
        kind, what, value = message
        if kind == "pulse":
            process.partial = value
            self._clock(process, what)
        elif kind == "fatal":
            raise (ContractError if what == "ContractError" else UserError)(value)
        else:
            position, request = process.queue.pop(0)
            process.partial = None
            self._clock(process, "build")
            self._note(request, value)
            if position is not None:
                answers[position] = value

    def _note(self, request: Request, answer: Any) -> None:
        """Remember what an episode would have to be rebuilt from."""
        if isinstance(request, Open):
            if isinstance(answer, Opening):
                self._history[request.number] = replace(request, expected=answer.observation)
            elif request.expected is not None:
                self._broken[request.number] = answer.error
                self._history.pop(request.number, None)
        elif isinstance(request, Act) and request.number in self._history:
            before = self._history[request.number]
            self._history[request.number] = replace(
                before, replayed=(*before.replayed, *answer.executed), expected=answer.observation
            )
        elif isinstance(request, Leave):
            self._history.pop(request.number, None)

    def _lost(self, process: _Process, answers: dict[int, Any], error: str, *, kill: bool = False) -> None:
        """Replace the process: its present request gets ``error``, its other episodes are rebuilt."""
        if kill:
            process.popen.kill()
            process.popen.wait()
        queue = process.queue
        if error:
            position, request = queue.pop(0)
            answer = self._blame(request, error, process.partial)
            self._note(request, answer)
            if position is not None:
                answers[position] = answer
            self._history.pop(request.number, None)
        process.connection.close()
        fresh = self._spawn()
        self._greet(fresh)
        at = self._processes.index(process)
        self._processes[at] = fresh
        mine = [number for number in self._history if number % len(self._processes) == at]
        waiting = {request.number for _, request in queue if isinstance(request, Open)}
        rebuilt: list[tuple[int | None, Request]] = [
            (None, self._history[number]) for number in mine if number not in waiting
        ]
        fresh.queue = rebuilt + queue
        self._send(fresh)

    def _blame(self, request: Request, error: str, partial: Outcome | None) -> Any:
        if isinstance(request, Act):
            self._broken[request.number] = error
            return replace(partial or Outcome(), error=error)
        return None if isinstance(request, Leave) else Failure(error)

    def _clock(self, process: _Process, doing: str) -> None:
        process.doing = doing
        process.deadline = time.monotonic() + self._limit(doing)[1]

    def _limit(self, doing: str) -> tuple[str, float]:
        name = "start_limit_seconds" if doing == "build" else "step_limit_seconds"
        return name, getattr(self._config, name)

    def _of(self, number: int) -> _Process:
        return self._processes[number % len(self._processes)]

    def _end_all(self) -> None:
        _end(self._processes)


def _end(processes: list[_Process]) -> None:
    """Ask all to end, then make sure of it."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError):
            # A busy one would not read it: its queue tells.
            process.connection.send(None) if not process.queue else process.popen.kill()
    reap((process.popen, process.connection) for process in processes)
    processes.clear()

"""Environments in worker processes: a crash, a hang or an exit there ends one episode and nothing else.

Every episode lives in the process ``number % N``; a process does its requests in their order, all processes at
once, and answers are handed back in the order of the requests. Nothing depends on which process is faster, so
results are those of ``workers = 0``, byte for byte.

A process that dies or exceeds a limit is replaced. The request that it was working on gets the error; its other
episodes are built anew from their seeds and brought to where they were by doing their actions again, which works
because an environment is a function of its seeds and actions.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from starpo.config.environment import EnvironmentConfig
from starpo.rollout.calls import Raised
from starpo.rollout.environments import (
    Act,
    Draw,
    Failure,
    Leave,
    LocalEnvironments,
    Open,
    Opening,
    Outcome,
    Reading,
    Request,
)
from starpo.rollout.processes import UNSENDABLE, EnvironmentLost, Worker, reap, unsendable

_Queue = list[tuple[int | None, Request]]
"""(position of the answer, request) in order; None: a replay that nobody asked for."""


class WorkerPool:
    """``config.workers`` processes, started at first use; see :class:`starpo.rollout.environments.Environments`."""

    def __init__(self, config: EnvironmentConfig, reading: Reading) -> None:
        self._config = config
        self._reading = reading
        self._workers: list[Worker] = []
        self._history: dict[int, Open] = {}
        self._broken: dict[int, str] = {}
        weakref.finalize(self, reap, self._workers)

    def answer(self, requests: Sequence[Request]) -> list[Any]:
        self._start()
        answers: dict[int | None, Any] = {}
        queues: list[_Queue] = [[] for _ in self._workers]
        for position, request in enumerate(requests):
            if request.number in self._broken and isinstance(request, Act):
                answers[position] = Outcome(error=self._broken[request.number])
            else:
                queues[request.number % len(queues)].append((position, request))
        try:
            for at, queue in enumerate(queues):
                self._ask(at, queue)
            while busy := [worker for worker in self._workers if worker.waiting]:
                wait([worker.connection for worker in busy], min(worker.patience() for worker in busy))
                for worker in busy:
                    self._listen(worker, answers)
        except BaseException:  # an interruption too: half-answered pipes are of no further use
            reap(self._workers)
            raise
        return [answers[position] for position in range(len(requests))]

    def clear(self) -> None:
        left = [Leave(number) for number in self._history]
        self._history.clear()
        self._broken.clear()
        if self._workers:
            self.answer(left)

    def close(self) -> None:
        reap(self._workers)

    def _start(self) -> None:
        if self._workers:
            return
        try:
            for _ in range(self._config.workers):
                self._workers.append(self._spawn())
            for worker in self._workers:
                worker.greet()
        except BaseException:
            reap(self._workers)
            raise

    def _spawn(self) -> Worker:
        return Worker(partial(LocalEnvironments, self._reading), self._config)

    def _ask(self, at: int, queue: _Queue) -> None:
        if not queue:
            return
        try:
            self._workers[at].ask(queue)
        except UNSENDABLE as error:
            names = {request.task.label for _, request in queue if isinstance(request, Draw | Open)}
            raise unsendable(", ".join(sorted(names)), error) from None
        except EnvironmentLost:  # it died while idle: nobody's episode is to blame
            self._replace(self._workers[at])

    def _listen(self, worker: Worker, answers: dict[int | None, Any]) -> None:
        """Take what the process says; deal with its silence."""
        try:
            while worker.waiting and (taken := worker.take()):
                position, request, answer = taken
                if isinstance(answer, Raised):
                    if answer.kept:
                        raise answer.exception()
                    answer = self._blame(request, f"{answer.name}: {answer.text}", None)
                self._note(request, answer)
                answers[position] = answer
        except EnvironmentLost as lost:
            position, request = worker.waiting.pop(0)
            answers[position] = self._blame(request, str(lost), worker.present_call().partial)
            self._note(request, answers[position])
            self._history.pop(request.number, None)
            self._replace(worker)

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

    def _replace(self, worker: Worker) -> None:
        """A fresh process for a lost one, with its other episodes and what was asked of it."""
        queue, at = worker.waiting, self._workers.index(worker)
        worker.popen.kill()
        reap([worker])
        fresh = self._workers[at] = self._spawn()
        fresh.greet()
        mine = [number for number in self._history if number % len(self._workers) == at]
        opened = {request.number for _, request in queue if isinstance(request, Open)}
        rebuilt: _Queue = [(None, self._history[number]) for number in mine if number not in opened]
        self._ask(at, rebuilt + queue)

    def _blame(self, request: Request, error: str, partial: Outcome | None) -> Any:
        if isinstance(request, Act):
            self._broken[request.number] = error
            return replace(partial or Outcome(), error=error)
        return None if isinstance(request, Leave) else Failure(error)

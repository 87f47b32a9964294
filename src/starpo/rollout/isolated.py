"""Environments in a process of their own, used like those in this process: for all besides playing.

Drawing prompts, random play, an environment's own solver, replays and demonstrations call a user's code one step at a
time. With ``environment.workers > 0`` they do so through :class:`IsolatedEnvironment`: a call that takes longer than
its limit, or that ends the process, raises :class:`EnvironmentLost` in the caller, and the next ``reset`` begins in a
new process.

Environments whose class says that it is ``trusted``, as the built-in ones do, stay where they are.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np

from starpo.config.environment import EnvironmentConfig
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, not_built
from starpo.environments.registry import Recipe, recipe
from starpo.errors import UserError
from starpo.rollout.calls import OTHERWISE, Call, Done, Facts, Present, Raised
from starpo.rollout.processes import EnvironmentLost, Worker, reap
from starpo.rollout.slots import Slots

Build = Callable[..., TextEnvironment]
"""``build(name, **arguments)``, as :func:`starpo.environments.registry.make`."""

#: An environment that lost this many processes gets no other: each may have taken a whole limit to notice.
MAX_LOSSES: Final = 5


class EnvironmentGivenUp(EnvironmentLost):
    """It did so before, too often to be tried again."""


class EnvironmentBuilder:
    """Builds environments: in this process, or with ``workers > 0`` what is not built in elsewhere.

    All environments of one kind share a process. It ends with the last of them and of this object, or where it was lost
    ``losses`` times.
    """

    def __init__(self, config: EnvironmentConfig, losses: int = MAX_LOSSES) -> None:
        self._config = config
        self._losses = losses
        self._links: list[tuple[Recipe, _Link]] = []

    def __call__(self, name: str, /, **arguments: Any) -> TextEnvironment:
        """As :func:`starpo.environments.registry.make`; raises ``UserError`` where it cannot be built."""
        wanted = recipe(name, **arguments)
        try:
            return self.of(wanted)
        except UserError:
            raise
        except OWN_FAILURES as error:
            raise not_built(name, error) from error

    def of(self, wanted: Recipe) -> TextEnvironment:
        """A new environment; raises what its constructor raises, and ``EnvironmentLost``."""
        if not self._config.workers or getattr(wanted.factory(), "trusted", False):
            return wanted.build()
        link = next((link for known, link in self._links if known == wanted), None)
        if link is None:
            link = _Link(wanted, self._config, self._losses)
            self._links.append((wanted, link))
        slot, done = link.slot()
        facts: Facts = done.result
        if facts.trusted:  # what a function builds
            link.dropped.append(slot)
            return wanted.build()
        assert done.present is not None
        # Messages and protocols see the class that it stands for: its name, and the methods that it has.
        own: dict[str, Any] = {"phrases": facts.phrases, "action_cost": facts.action_cost}
        own["failure_labels"] = facts.failure_labels
        own |= {name: _remote(name) for name in facts.methods}
        return type(facts.name, (IsolatedEnvironment,), own)(link, slot, done.present)


class IsolatedEnvironment(TextEnvironment):
    """Stands for an environment in another process. ``info`` holds ``success`` and ``effective`` alone."""

    def __init__(self, link: _Link, slot: int, present: Present) -> None:
        super().__init__()
        self._link, self._slot = link, slot
        self._adopt(present)
        weakref.finalize(self, link.dropped.append, slot)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._ask("reset", seed, options)

    def step(self, action: str) -> Any:
        return self._ask("step", action)

    def close(self) -> None:
        self._link.dropped.append(self._slot)

    def __deepcopy__(self, memo: dict[int, Any]) -> IsolatedEnvironment:
        slot, done = self._link.copy(self._slot)
        assert done.present is not None
        return type(self)(self._link, slot, done.present)

    def _ask(self, what: str, *arguments: Any) -> Any:
        done = self._link.ask(self._slot, what, *arguments)
        self._adopt(done.present)
        for each in arguments:
            if isinstance(each, np.random.Generator) and done.draw is not None:
                each.bit_generator.state = done.draw.bit_generator.state
        return done.result

    def _adopt(self, present: Present | None) -> None:
        assert present is not None
        self.rules, self.action_names = present.rules, present.action_names
        self.return_range, self.dynamics, self._over = present.return_range, present.dynamics, present.over

    def _begin(self, instance: np.random.Generator) -> NoReturn:
        raise AssertionError("reset is done elsewhere")

    def _act(self, action: str) -> NoReturn:
        raise AssertionError("step is done elsewhere")


def _remote(name: str) -> Callable[..., Any]:
    def method(self: IsolatedEnvironment, *arguments: Any) -> Any:
        return self._ask(name, *arguments)

    return method


class _Link:
    """The process, started at the first call and after each loss, and the environments on its numbered slots.

    After a loss the others are built anew when they are next asked for, and their actions done again.
    """

    def __init__(self, wanted: Recipe, config: EnvironmentConfig, losses: int) -> None:
        self._recipe, self._config = wanted, config
        self._left, self._why = losses, ""
        self._workers: list[Worker] = []
        self._slots: set[int] = set()
        self._histories: dict[int, tuple[tuple[Call, ...], str]] = {}
        self._next = 0
        self.dropped: list[int] = []
        weakref.finalize(self, reap, self._workers)

    def slot(self) -> tuple[int, Done]:
        """A new slot with a new environment."""
        self._close_dropped()
        slot, self._next = self._next, self._next + 1
        return slot, self._build(slot)

    def copy(self, slot: int) -> tuple[int, Done]:
        """A new slot with a copy of the environment on ``slot``."""
        new, self._next = self._next, self._next + 1
        done = self.ask(slot, "copy", new)
        self._slots.add(new)
        self._histories[new] = self._histories.get(slot, ((), ""))
        return new, done

    def ask(self, slot: int, what: str, *arguments: Any) -> Done:
        """The answer, or the exception of the environment; raises ``EnvironmentLost`` where none comes in time."""
        self._close_dropped()
        call = Call(slot, what, arguments)
        if slot not in self._slots:
            if what != "reset":
                self._restore(slot, what)
            else:
                self._build(slot)
        try:
            done = self._call(call)
        except EnvironmentLost:
            self._histories.pop(slot, None)
            raise
        if what in ("reset", "step"):
            before = () if what == "reset" else self._histories.get(slot, ((), ""))[0]
            self._histories[slot] = (*before, call), repr(done.result)
        return done

    def _close_dropped(self) -> None:
        """Close what nobody uses any more, so that the time it takes is not that of another's call."""
        while self.dropped:
            slot = self.dropped.pop()
            self._histories.pop(slot, None)
            if slot in self._slots:
                self._slots.remove(slot)
                with contextlib.suppress(EnvironmentLost):  # the others are restored when they are asked for
                    self._call(Call(slot, "close"))

    def _build(self, slot: int) -> Done:
        done = self._call(Call(slot, "build"))
        self._slots.add(slot)
        return done

    def _restore(self, slot: int, what: str) -> None:
        calls, expected = self._histories.pop(slot, ((), ""))
        if not calls:
            raise EnvironmentLost(f"{what}: the environment's process was lost; reset first")
        self._build(slot)
        for call in calls:
            done = self._call(replace(call, slot=slot))  # a copy's first calls were those of another slot
        if repr(done.result) != expected:
            raise EnvironmentLost(OTHERWISE)
        self._histories[slot] = calls, expected

    def _call(self, call: Call) -> Done:
        if not self._workers:
            if not self._left:
                raise EnvironmentGivenUp(
                    f"its process was lost too often, the first time because {self._why}"
                )
            self._start()
        (worker,) = self._workers
        try:
            worker.ask([(None, call)])
            answer = worker.answer()
        except EnvironmentLost as lost:
            self._lose()
            self._left, self._why = self._left - 1, self._why or str(lost)
            raise
        except BaseException:  # an interruption: the answer would be taken for that of the next call
            self._lose()
            raise
        if isinstance(answer, Raised):
            raise answer.exception()
        done: Done = answer
        return done

    def _start(self) -> None:
        self._workers.append(Worker(partial(Slots, self._recipe), self._config))
        try:
            self._workers[0].greet(repr(self._recipe.name))
        except BaseException:
            self._lose()
            raise

    def _lose(self) -> None:
        for worker in self._workers:
            worker.popen.kill()
        reap(self._workers)
        self._slots.clear()

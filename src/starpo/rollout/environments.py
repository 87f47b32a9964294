"""The environments of running episodes: what can be asked of them, and the answers.

The same code plays in this process and in the worker processes of :mod:`starpo.rollout.workers`, which import this
module and neither torch nor an engine. Requests and answers are plain records that go through a pipe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starpo.agent.parser import parse_response
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import (
    OWN_FAILURES,
    ContractError,
    check_action,
    check_reset,
    check_step,
    close,
    not_built,
    plain_info,
)
from starpo.environments.registry import Recipe
from starpo.environments.splits import Instance, NoInstanceError, Split, draw_instance
from starpo.errors import UserError
from starpo.rollout.calls import OTHERWISE
from starpo.seeds import SeedKey


@dataclass(frozen=True)
class Task:
    """An environment by the name that tables and messages use."""

    label: str
    """Name in tables, metrics and messages."""
    recipe: Recipe
    """How it is built."""


@dataclass(frozen=True)
class Draw:
    """Find the instance of a group."""

    number: int
    """Of the group."""
    task: Task
    """Environment."""
    split: Split
    """Split to draw from."""
    key: SeedKey
    """The group's seed key."""


@dataclass(frozen=True)
class Open:
    """Build an environment for an episode and reset it."""

    number: int
    """Of the episode; later requests name it."""
    task: Task
    """Environment."""
    instance_seed: int
    """For ``reset``."""
    dynamics_seed: int
    """For ``reset``."""
    replayed: tuple[str, ...] = ()
    """Actions to do at once: those of an episode that lost its process."""
    expected: str | None = None
    """Observation that must be there afterwards."""


@dataclass(frozen=True)
class Act:
    """Read a response and do its actions."""

    number: int
    """Of the episode."""
    text: str
    """The whole response."""
    max_actions: int
    """Most actions that are done; more are cut."""


@dataclass(frozen=True)
class Leave:
    """The episode is over; its environment may go."""

    number: int
    """Of the episode."""


Request = Draw | Open | Act | Leave


@dataclass(frozen=True)
class Failure:
    """An environment's own error before the first turn; the run goes on."""

    error: str
    """Type and message of the exception, or what became of the process."""


@dataclass(frozen=True)
class Opening:
    """An episode before its first turn."""

    observation: str
    """First observation, or the present one after a replay."""
    rules: str
    """What the agent is told once."""


@dataclass(frozen=True)
class Outcome:
    """What came of a response."""

    thought: str = ""
    """As parsed."""
    actions: tuple[str, ...] = ()
    """Legal actions in the response."""
    format_valid: bool = False
    """The parser's verdict."""
    executed: tuple[str, ...] = ()
    """Actions that were done."""
    observation: str = ""
    """State text afterwards; the one before if nothing was done."""
    reward: float = 0.0
    """Sum over the executed actions."""
    effective: int = 0
    """Executed actions that changed something."""
    terminated: bool = False
    """The environment ended the episode."""
    truncated: bool = False
    """The environment's own clock ended it."""
    success: bool = False
    """The task is solved."""
    info: dict[str, Any] = field(default_factory=dict)
    """The last info, as JSON values."""
    error: str = ""
    """Type and message of the exception that ended the episode; what was done before it stands."""


Answer = Instance | Opening | Outcome | Failure | None
OnCall = Callable[[str, Outcome | None], None]
"""Called before each call into an environment with the call's name and the turn so far."""


class Environments(Protocol):
    """Where the environments live."""

    def answer(self, requests: Sequence[Request]) -> list[Any]:
        """Answers in the order of the requests. Raises ``ContractError`` or ``UserError``: the run must stop."""

    def clear(self) -> None:
        """Forget all episodes."""

    def close(self) -> None:
        """End for good."""


@dataclass(frozen=True)
class Reading:
    """How responses are read."""

    think: bool
    """A thought belongs to a valid format."""
    separator: str
    """Between actions."""


class LocalEnvironments:
    """Environments in this process, by the number of their episode."""

    def __init__(
        self,
        reading: Reading,
        on_call: OnCall = lambda kind, partial: None,
        build: Callable[[Recipe], TextEnvironment] = Recipe.build,
    ) -> None:
        self._reading = reading
        self._on_call = on_call
        self._building = build
        self._for_drawing: dict[str, tuple[Task, TextEnvironment]] = {}
        self._slots: dict[int, tuple[str, TextEnvironment, str]] = {}
        self._lost: dict[int, str] = {}

    def answer(self, requests: Sequence[Request]) -> list[Any]:
        return [self.do(request) for request in requests]

    def do(self, request: Request) -> Answer:
        """One answer. An environment's own exception becomes part of it; a breach of contract is raised."""
        match request:
            case Draw():
                return self._draw(request)
            case Open():
                return self._open(request)
            case Act():
                return self.act(request)
            case Leave():
                self._leave(request.number)
                return None

    def about(self, request: Request) -> str:
        """What a message calls it."""
        return f"environment of episode or group {request.number}: {type(request).__name__.lower()}"

    def environment(self, number: int) -> TextEnvironment:
        """The environment of an open episode, for demonstrators who look behind the scenes."""
        return self._slots[number][1]

    def clear(self) -> None:
        for number in list(self._slots):
            self._leave(number)
        self._lost.clear()

    def close(self) -> None:
        self.clear()
        for _, env in self._for_drawing.values():
            close(env)
        self._for_drawing.clear()

    def _build(self, task: Task) -> TextEnvironment:
        self._on_call("build", None)
        try:
            return self._building(task.recipe)
        except UserError:
            raise
        except OWN_FAILURES as error:
            raise not_built(task.label, error) from error

    def _draw(self, request: Draw) -> Instance | Failure:
        task, drawn_from = self._for_drawing.get(request.task.label, (None, None))
        if drawn_from is None or task != request.task:
            drawn_from = self._build(request.task)
            self._for_drawing[request.task.label] = request.task, drawn_from
        self._on_call("reset", None)
        try:
            return draw_instance(drawn_from, split=request.split, key=request.key)
        except NoInstanceError as error:
            raise UserError(f"environment {request.task.label!r}: {error}") from None
        except ContractError:
            raise
        except OWN_FAILURES as error:
            return Failure("; ".join([_text(error), *getattr(error, "__notes__", [])]))

    def _open(self, request: Open) -> Opening | Failure:
        label = request.task.label
        self._lost.pop(request.number, None)
        env = self._build(request.task)
        self._on_call("reset", None)
        try:
            observation, _ = check_reset(
                label, env.reset(seed=request.instance_seed, options={"dynamics_seed": request.dynamics_seed})
            )
            for action in request.replayed:
                self._on_call("step", None)
                observation, *_ = check_step(label, env.step(action))
        except ContractError:
            raise
        except OWN_FAILURES as error:
            return self._refuse(request, env, _text(error))
        if request.expected is not None and observation != request.expected:
            return self._refuse(request, env, OTHERWISE)
        self._slots[request.number] = label, env, observation
        return Opening(observation, env.rules)

    def _refuse(self, request: Open, env: TextEnvironment, why: str) -> Failure:
        close(env)
        self._lost[request.number] = why
        return Failure(why)

    def act(self, request: Act) -> Outcome:
        """Read a response and do its actions, up to the first error."""
        if request.number in self._lost:
            return Outcome(error=self._lost[request.number])
        label, env, observation = self._slots[request.number]
        try:
            parsed = parse_response(
                request.text,
                env.match_action,
                think=self._reading.think,
                separator=self._reading.separator,
                max_actions=request.max_actions,
            )
        except ContractError:
            raise
        except OWN_FAILURES as error:
            return Outcome(observation=observation, error=_text(error))
        actions = tuple(check_action(label, env, action) for action in parsed.actions)
        turn = Outcome(parsed.thought, actions, parsed.format_valid, observation=observation)
        for action in actions:
            self._on_call("step", turn)
            try:
                observation, reward, terminated, truncated, info = check_step(label, env.step(action))
            except ContractError:
                raise
            except OWN_FAILURES as error:
                turn = dataclasses.replace(turn, error=_text(error))
                break
            turn = dataclasses.replace(
                turn,
                executed=(*turn.executed, action),
                observation=observation,
                reward=turn.reward + reward,
                effective=turn.effective + info["effective"],
                terminated=terminated,
                truncated=truncated,
                success=info["success"],
                info=plain_info(label, info),
            )
            if terminated or truncated:
                break
        self._slots[request.number] = label, env, turn.observation
        return turn

    def _leave(self, number: int) -> None:
        if number in self._slots:
            close(self._slots.pop(number)[1])


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"

"""What a reward term sees: a trajectory as it is stored, and what environments know of the states behind its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starpo.environments.base import TextEnvironment
from starpo.environments.records import StateFacts


class States:
    """What environments know of the states behind observations; each text is asked about once."""

    def __init__(self, builders: Mapping[str, Callable[[], TextEnvironment | None]] | None = None) -> None:
        """``builders``: name in the table -> what builds the environment when it is first asked; None: it knows
        nothing."""
        self._builders = builders or {}
        self._built: dict[str, TextEnvironment | None] = {}
        self._facts: dict[tuple[str, str], StateFacts | None] = {}
        self._distances: dict[tuple[str, str], float | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the environments that can be asked."""
        return tuple(self._builders)

    def environment(self, name: str) -> TextEnvironment | None:
        """The environment called ``name``; None where it knows nothing of states."""
        if name not in self._built:
            build = self._builders.get(name)
            self._built[name] = None if build is None else build()
        return self._built[name]

    def facts(self, name: str, observation: str) -> StateFacts | None:
        """As the environment's ``facts``."""
        key = (name, observation)
        if key not in self._facts:
            env = self.environment(name)
            self._facts[key] = None if env is None else env.facts(observation)
        return self._facts[key]

    def distance(self, name: str, observation: str) -> float | None:
        """As the environment's ``distance``."""
        key = (name, observation)
        if key not in self._distances:
            env = self.environment(name)
            self._distances[key] = None if env is None else env.distance(observation)
        return self._distances[key]


@dataclass(frozen=True, eq=False, kw_only=True)
class Turn:
    """One turn as the table of turns holds it."""

    observation: str = ""
    """State text before the turn."""
    thought: str = ""
    """Text between the think tags."""
    response: str = ""
    """All that the policy wrote."""
    response_ids: Sequence[int] = ()
    """Its sampled tokens."""
    actions: tuple[str, ...] = ()
    """Legal actions of the answer."""
    executed: tuple[str, ...] = ()
    """Actions that were really done."""
    effective: int = 0
    """Executed actions that changed something."""
    format_valid: bool = True
    """The parser's verdict."""
    stop_reason: str = "stop"
    """``stop`` or ``length``."""
    reward: float = 0.0
    """Sum of the environment's rewards, times the ``reward_scale`` of a mixture's member."""
    next_observation: str = ""
    """State text after the turn."""
    terminated: bool = False
    """The environment ended the episode in this turn."""
    success: bool = False
    """The task is solved after this turn."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The environment's last info."""
    environment: str = ""
    """Its name in the tables."""
    states: States = field(default_factory=States, repr=False)
    """Who is asked about the state."""

    @property
    def state(self) -> StateFacts | None:
        """The state before the turn; None where the environment, or this text, tells none."""
        return self.states.facts(self.environment, self.observation)

    @property
    def next_state(self) -> StateFacts | None:
        """The state after the turn."""
        return self.states.facts(self.environment, self.next_observation)

    @property
    def distance(self) -> float | None:
        """Fewest actions from the state before the turn to success; None: nobody knows."""
        return self.states.distance(self.environment, self.observation)

    @property
    def next_distance(self) -> float | None:
        """The same from the state after the turn."""
        return self.states.distance(self.environment, self.next_observation)


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """A trajectory as it is stored; ``len`` is its number of turns."""

    turns: tuple[Turn, ...]
    """In order."""
    success: bool = False
    """It solved its task."""
    stop: str = ""
    """Why it ended, such as ``terminated`` or ``turn_limit``."""
    environment: str = ""
    """Name of its environment in the tables."""
    iteration: int = 0
    """Iteration that it was rolled out in."""
    group: int = 0
    """Its prompt."""
    member: int = 0
    """Its number in the group."""

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def address(self) -> str:
        """How messages call it."""
        return f"iteration {self.iteration}, group {self.group}, member {self.member}"


@dataclass(frozen=True)
class Missing:
    """In the place of a number: this turn could not be judged. It counts 0."""

    reason: str
    """Why, for the table."""

"""What environments are asked about their own play, and what they answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """What the harness allows in one episode."""

    turns: int
    """Turns; the environment is seen between them only."""
    actions_per_turn: int
    """Actions of one turn, done one after the other without looking."""
    actions: int
    """Actions in all."""

    @property
    def moves(self) -> int:
        """Most actions that an episode can hold."""
        return min(self.actions, self.turns * self.actions_per_turn)


@dataclass(frozen=True)
class Expectation:
    """What a way of playing one instance achieves on average over its luck."""

    success: float
    """Chance of success."""
    value: float
    """Expected return: the environment's rewards, without a format penalty or other terms."""


@dataclass(frozen=True)
class Step:
    """One executed action of an episode that was played again."""

    turn: int
    """Turn that it belongs to, from 0."""
    action: str
    """Its name."""
    before: Hashable
    """State before, as the environment's ``state`` gives it."""
    after: Hashable
    """State after."""
    effective: bool
    """It changed something."""


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode that is over, for the environment to say why it failed."""

    steps: tuple[Step, ...]
    """Executed actions; empty where the replay went otherwise than the episode."""
    turns: int
    """Turns, at least 1."""
    success: bool
    """Solved."""
    returned: float
    """Sum of the environment's rewards."""


@dataclass(frozen=True)
class Failure:
    """What a trajectory's failure is put down to, with its place."""

    label: str
    """Why: of those that any environment can have, or of the environment's own ``failure_labels``."""
    turn: int
    """The turn that decided it, from 0."""
    unlucky: bool = False
    """Luck decided it, so that it matters what the same actions are worth under another luck."""


Cell = tuple[int, int]
"""(row, column), from the upper left one, (0, 0)."""


@dataclass(frozen=True)
class StateFacts:
    """The state behind an observation, as its text tells it: what the words of a thought are compared with."""

    actions: tuple[str, ...] = ()
    """Names of the legal actions."""
    places: Mapping[str, frozenset[Cell]] = field(default_factory=dict)
    """Kind of thing (``player``, ``goal``, ``box`` ...) -> where each one is; a kind of which there is none has the
    empty set."""
    around: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Direction (``left``, ``right``, ``up``, ``down``) -> words for what lies one step that way of the player."""
    present: frozenset[str] = frozenset()
    """Names of things without a place that are there, such as a bandit's arms."""
    absent: frozenset[str] = frozenset()
    """Names of the same family that are not there."""

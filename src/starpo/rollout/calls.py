"""What the run and its worker processes say to each other about one environment, and how either says that it raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError
from starpo.errors import UserError

#: Exceptions that mean something to the caller; others arrive as an ``EnvironmentFailure`` of the same name.
KEPT: Final = (ContractError, UserError, NotImplementedError)
#: Why an episode cannot go on in a new process.
OTHERWISE: Final = "its worker process was lost, and the same seeds and actions lead to another state"
#: Methods that are asked for in the process where the environment's class has its own.
OPTIONAL: Final = (
    "best_play",
    "chance_of",
    "declared_split",
    "match_action",
    "optimal_actions",
    "own_failure",
    "random_action",
    "random_play",
    "state",
)


class EnvironmentFailure(Exception):
    """An exception of the environment's own, by its name and text."""


@dataclass(frozen=True)
class Facts:
    """What there is to know about an environment that was just built."""

    name: str
    """Of its class."""
    trusted: bool
    """It may stay in the run's process."""
    methods: tuple[str, ...]
    """Those of ``OPTIONAL`` that are its own."""
    phrases: tuple[str, ...]
    """Constant pieces of its observations."""
    action_cost: float
    """What every action takes off the return."""
    failure_labels: dict[str, str]
    """Labels of its own."""


@dataclass(frozen=True)
class Present:
    """What others read from an environment, as it is after a call."""

    rules: str
    """What the agent is told."""
    action_names: tuple[str, ...]
    """Legal actions."""
    return_range: tuple[float, float]
    """Smallest and largest return."""
    dynamics: np.random.Generator
    """Luck; its state tells whether any was drawn."""
    over: bool
    """The episode has ended."""

    @classmethod
    def of(cls, env: TextEnvironment) -> Present:
        # Before the first reset there may be no luck yet, where a constructor does not call that of its base.
        dynamics = getattr(env, "dynamics", None) or np.random.default_rng(0)
        return cls(env.rules, env.action_names, env.return_range, dynamics, getattr(env, "_over", True))


@dataclass(frozen=True)
class Call:
    """A request to the process."""

    slot: int
    """Which environment; copies have slots of their own."""
    what: str
    """``build``, ``copy``, ``close`` or the name of another method."""
    arguments: tuple[Any, ...] = ()
    """Positional arguments; of ``copy`` the new slot."""


@dataclass(frozen=True)
class Done:
    """An answer."""

    result: Any
    """Of the method; of ``build`` its :class:`Facts`; None of ``copy`` and ``close``."""
    present: Present | None
    """Afterwards."""
    draw: np.random.Generator | None = None
    """The generator that was an argument, as the method left it."""


@dataclass(frozen=True)
class Raised:
    """The other answer, to any request."""

    name: str
    """The exception's class."""
    text: str
    """Its message."""
    kept: bool
    """It is one of ``KEPT``, by that name, and arrives as such."""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        try:
            text = str(error)
        except Exception:
            text = "its message cannot be had"
        kept = next((each.__name__ for each in KEPT if isinstance(error, each)), "")
        return cls(kept or type(error).__name__, text, kept=bool(kept))

    def exception(self) -> Exception:
        """To raise here."""
        kept = {each.__name__: each for each in KEPT}
        return (kept[self.name] if self.kept else type(self.name, (EnvironmentFailure,), {}))(self.text)

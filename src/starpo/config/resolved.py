"""What a command works with, once all parameters are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starpo.config.parameters import Parameters


@dataclass(frozen=True)
class Source:
    """A run at an iteration."""

    run: str
    """Name of the run."""
    iteration: int
    """Iterations behind its policy, or the iteration of its rollouts."""

    def __str__(self) -> str:
        return f"{self.run}@{self.iteration:04d}"


@dataclass(frozen=True)
class Resolved:
    """What a Kedro command works with."""

    pipeline: str
    """Requested pipeline."""
    raw: dict[str, Any]
    """Parameters as nested dicts, preset and ``--params`` applied, ``run.name`` filled in."""
    parameters: Parameters
    """The same, typed."""
    source: Source | None
    """What a stage alone works on."""
    fork: Source | None
    """Where a forked run starts."""
    against: Source | None = None
    """The policy that an evaluation compares its own with."""
    names: dict[str, str] = field(default_factory=dict)
    """Answers to ``${run:…}`` in the catalog."""
    env: str | None = None
    """Kedro environment, for messages that quote a command; None: the base configuration alone."""

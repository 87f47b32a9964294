"""The task, or several."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, model_validator

from starpo.config.section import Arguments, Section


class MixtureMember(Section):
    """One environment of several in a training run."""

    name: str
    """Registered name or ``module:Class``."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the environment; null for none."""
    weight: float = Field(gt=0)
    """Share of the groups, relative to the other members' weights."""
    label: str | None = Field(None, pattern=r"^[A-Za-z0-9_]+$")
    """Name in tables, metrics and suites (letters, digits, _); null: ``name`` with _ for all else."""
    reward_scale: float = Field(1.0, gt=0)
    """Factor on this environment's rewards where trajectories are scored; the rollouts keep them as they came."""

    @property
    def known_as(self) -> str:
        """The label in use."""
        return self.label or re.sub(r"\W+", "_", self.name)


class EnvironmentConfig(Section):
    """The training task, or several."""

    name: str
    """Registered name or ``module:Class``; with a mixture the name of the whole, as in the run's name."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the environment; null for none."""
    mixture: list[MixtureMember] | None = Field(None, min_length=1)
    """Environments that share the groups of every iteration by their weights; null: ``name`` alone."""
    workers: int = Field(0, ge=0)
    """Processes that the environments live in; 0: this one. Results do not depend on it."""
    step_limit_seconds: float = Field(60.0, gt=0, le=86_400)
    """Longest reset or step in a worker process before its episode ends as an environment error, s."""
    start_limit_seconds: float = Field(120.0, gt=0, le=86_400)
    """Longest start of a worker process, and longest construction of an environment there, s."""

    @property
    def members(self) -> tuple[MixtureMember, ...]:
        """The environments: those of the mixture, or the only one."""
        if self.mixture is not None:
            return tuple(self.mixture)
        return (MixtureMember(name=self.name, arguments=self.arguments, weight=1.0),)

    def identity(self) -> dict[str, Any]:
        """What the task is, without where it runs; a policy's harness and its name depend on it."""
        task = {"name": self.name, "arguments": self.arguments}
        return task | (
            {} if self.mixture is None else {"mixture": [each.model_dump() for each in self.mixture]}
        )

    @model_validator(mode="after")
    def _members_are_told_apart(self) -> EnvironmentConfig:
        if self.mixture is None:
            return self
        if self.arguments:
            raise ValueError(
                f"arguments = {self.arguments} beside a mixture belong to no environment; set arguments: null and "
                "give each member its own"
            )
        labels = [member.known_as for member in self.mixture]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(
                f"mixture holds {min(twice)!r} more than once; give its members different labels (label: ...)"
            )
        return self

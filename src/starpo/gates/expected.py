"""What a gate knows about the data before it sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import MetricLimits, QuarantineConfig
from starpo.environments.registry import make

Range = tuple[float, float]
"""Smallest and largest environment return of one episode."""


@dataclass(frozen=True)
class Expected:
    """The facts that rules compare with. None: unknown, and rules that need it are not asked."""

    quarantine: QuarantineConfig = field(default_factory=QuarantineConfig)
    """Limits of log-probs and rewards."""
    limits: MetricLimits = field(default_factory=MetricLimits)
    """Bounds of metrics."""
    max_quarantined_share: float | None = None
    """Largest share of trajectories that may be at fault or lack rows."""
    iteration: int | None = None
    """Iteration of the table."""
    policy_step: int | None = None
    """Updates behind the policy of that iteration, by its manifest: the version of the weights."""
    groups: int | None = None
    """Groups that the iteration must have at least; re-sampling adds more."""
    group_size: int | None = None
    """Trajectories per group."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Return range by environment name; the environments not named have no bound."""
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Arguments by environment name, for environments that declare the split of their instances."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Registered name by the label that a mixture gives an environment; a name not listed is its own."""

    def of(self, task: EnvironmentConfig) -> Expected:
        """The same with the ranges, arguments and names of the task's environments."""
        members = {member.known_as: member for member in task.mixture or ()}
        arguments = {label: member.arguments for label, member in members.items()}
        return replace(
            self,
            ranges=return_ranges(task),
            arguments=arguments or {task.name: task.arguments},
            names={label: member.name for label, member in members.items()},
        )


def return_ranges(environment: EnvironmentConfig) -> dict[str, Range]:
    """Return range by environment name, as the environments declare it."""
    ranges = {}
    for member in environment.members:
        low, high = make(member.name, **member.arguments).return_range
        name = environment.name if environment.mixture is None else member.known_as
        ranges[name] = (float(low), float(high))
    return ranges

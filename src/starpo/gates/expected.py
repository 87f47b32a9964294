"""What a gate knows about the data before it sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starpo.config.gates import GatesConfig
from starpo.gates.quarantine import Range


@dataclass(frozen=True)
class Expected:
    """The facts that a suite compares with; None: unknown, only constancy within the table is checked."""

    gates: GatesConfig = field(default_factory=GatesConfig)
    """Limits."""
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

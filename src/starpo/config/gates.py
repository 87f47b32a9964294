"""What is checked between the stages."""

from __future__ import annotations

from pydantic import Field

from starpo.config.section import Section


class QuarantineConfig(Section):
    """Which trajectories are not learned from. It shapes the training, so it cannot change on an existing run."""

    max_logprob: float = Field(1e-4, ge=0)
    """Largest log-prob of a sampled token, nats: a float32 log-softmax may exceed 0 by rounding only."""
    min_logprob: float = Field(-100.0, lt=0)
    """Smallest log-prob of a sampled token, nats: below it the token cannot have been sampled."""
    return_tolerance: float = Field(1e-3, ge=0)
    """How far a return may lie outside the environment's return_range, or off the sum of its turn rewards, in
    units of the return: sums of float32 rewards."""
    max_absolute_reward: float = Field(1000.0, gt=0)
    """Largest absolute reward of one turn after all reward terms, in units of the return."""


class MetricLimits(Section):
    """Bounds on an update's metrics, beyond which the run stops: something has blown up."""

    max_approx_kl: float = Field(10.0, gt=0)
    """KL from the rollout policy to the updated one, nats per token."""
    max_entropy: float = Field(20.0, gt=0)
    """Mean entropy of the next-token distribution, nats; a vocabulary of V tokens gives at most log V."""
    max_gradient_norm: float = Field(1e6, gt=0)
    """Global gradient norm of actor and critic before clipping."""
    max_loss: float = Field(1e6, gt=0)
    """Absolute value of any loss."""


class GatesConfig(Section):
    """What is checked between the stages, how often, and what stops the run (docs/gates.md)."""

    every: int | None = Field(25, gt=0)
    """Iterations between runs of the Great Expectations suites on tables and evaluations; they also run on the last
    ones and on stages alone; null: never. The cheap invariants are checked on every save whatever this is."""
    max_quarantined_share: float = Field(0.05, ge=0, le=1)
    """Largest share of an iteration's trajectories that may be quarantined or lack rows, because their environment
    failed at reset or their first prompt left no room for a response; beyond it the run stops."""
    quarantine: QuarantineConfig = QuarantineConfig()
    limits: MetricLimits = MetricLimits()

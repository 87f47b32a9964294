"""Reward and variance filter: what each trajectory was worth and which groups are learned from."""

from __future__ import annotations

import pyarrow as pa

from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import GatesConfig
from starpo.config.reward import FilterConfig, RewardConfig
from starpo.config.run import RunConfig
from starpo.scoring.scoring import mark_kept, score_rollouts


def score_trajectories(
    rollouts: pa.Table,
    reward: RewardConfig,
    gates: GatesConfig,
    environment: EnvironmentConfig,
    run: RunConfig,
) -> pa.Table:
    """Reward terms per turn, summed to returns; one row per trajectory. Faulty trajectories are quarantined."""
    return score_rollouts(rollouts, reward, gates, environment, run)


def filter_groups(returns: pa.Table, filter: FilterConfig, run: RunConfig) -> pa.Table:
    """Mark the groups whose returns spread most; every row stays."""
    return mark_kept(returns, filter, run.seed)

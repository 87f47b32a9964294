"""Reward and variance filter: what each trajectory was worth and which groups are learned from."""

from __future__ import annotations

import pyarrow as pa

from starpo.config import FilterConfig, RewardConfig
from starpo.data.scoring import mark_kept, score_turns
from starpo.rewards.total import bind_terms


def score_trajectories(rollouts: pa.Table, reward: RewardConfig) -> pa.Table:
    """Reward terms per turn, summed to returns; one row per trajectory."""
    return score_turns(rollouts, bind_terms(reward.terms))


def filter_groups(returns: pa.Table, filter: FilterConfig) -> pa.Table:
    """Mark the groups whose returns spread most; every row stays."""
    return mark_kept(returns, filter)

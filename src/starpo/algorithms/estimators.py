"""One call signature for every advantage estimator: ``estimator(batch, **parameters) -> Advantages``.

The estimators themselves are in the files named after them. Here each is fitted to one record, so that a run
chooses among them, or a user's own, by name. What an estimator needs of a run (a critic, groups of several) it
declares itself, see :mod:`starpo.algorithms.needs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.algorithms import bilevel_gae as bilevel
from starpo.algorithms import gae as flat
from starpo.algorithms import gigpo as anchored
from starpo.algorithms import group, reinforce
from starpo.algorithms.gae import Advantages
from starpo.algorithms.masking import masked, masked_whiten
from starpo.algorithms.needs import needs


@dataclass(frozen=True)
class AdvantageBatch:
    """What an estimator may look at. One row per trajectory; fields an estimator does not need may be
    None."""

    mask: Tensor
    """bool [B, T], True on sampled tokens."""
    turn_index: Tensor
    """int64 [B, T], 0-based turn of each sampled token."""
    turn_rewards: Tensor
    """float64 [B, K], the sum of the reward terms per turn; in float32 equal returns would differ by rounding."""
    turn_mask: Tensor
    """bool [B, K], True where the trajectory has the turn."""
    group_ids: Tensor
    """int64 [B], equal for attempts at the same task."""
    values: Tensor | None = None
    """float [B, T], the critic's; needed by ``gae`` and ``bilevel_gae``."""
    kl_rewards: Tensor | None = None
    """float [B, T], minus coefficient times KL per token; None without KL in the reward."""
    anchors: Tensor | None = None
    """int64 [B, K], equal where turns started from the same state; needed by ``gigpo``."""

    def token_rewards(self) -> Tensor:
        """Rewards on the last token of each turn, plus the KL penalty per token; float [B, T]."""
        placed = flat.place_turn_rewards(self.turn_rewards, self.turn_mask, self.turn_index, self.mask)
        return placed if self.kl_rewards is None else placed + masked(self.kl_rewards, self.mask)

    def returns(self) -> Tensor:
        """Undiscounted return of each trajectory, KL penalty included; float [B]."""
        returns = masked(self.turn_rewards, self.turn_mask).sum(dim=1)
        if self.kl_rewards is None:
            return returns
        return returns + masked(self.kl_rewards, self.mask).sum(dim=1)


Estimator = Callable[..., Advantages]


def _need(field: Tensor | None, name: str, estimator: str) -> Tensor:
    if field is None:
        raise ValueError(f"the estimator {estimator!r} needs {name}, which this batch does not have")
    return field


def _whitened(result: Advantages, mask: Tensor, whiten: bool) -> Advantages:
    return Advantages(masked_whiten(result.advantages, mask), result.returns) if whiten else result


@needs(critic=True)
def gae(batch: AdvantageBatch, *, gamma: float = 1.0, lam: float = 1.0, whiten: bool = True) -> Advantages:
    """Token-level GAE with a critic, whitened over the batch (RAGEN). See :mod:`starpo.algorithms.gae`."""
    values = _need(batch.values, "critic values", "gae")
    result = flat.gae(
        batch.token_rewards(),
        values,
        batch.mask,
        gamma=gamma,
        lam=lam,
    )
    return _whitened(result, batch.mask, whiten)


@needs(critic=True)
def bilevel_gae(
    batch: AdvantageBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    turn_gamma: float = 0.95,
    turn_lam: float | None = None,
    whiten: bool = True,
) -> Advantages:
    """Turn-level, then token-level GAE with a critic. See :mod:`starpo.algorithms.bilevel_gae`."""
    values = _need(batch.values, "critic values", "bilevel_gae")
    result = bilevel.bilevel_gae(
        batch.token_rewards(),
        values,
        batch.mask,
        batch.turn_index,
        gamma=gamma,
        lam=lam,
        turn_gamma=turn_gamma,
        turn_lam=turn_lam,
    )
    return _whitened(result, batch.mask, whiten)


def _per_trajectory(batch: AdvantageBatch, advantages: Tensor) -> Advantages:
    return Advantages(
        group.broadcast_to_tokens(advantages, batch.mask),
        group.broadcast_to_tokens(batch.returns(), batch.mask),
    )


@needs(group=True)
def grpo(
    batch: AdvantageBatch,
    *,
    divide_by_std: bool = True,
    epsilon: float = group.GRPO_EPSILON,
    singletons: group.Singletons = "zero",
) -> Advantages:
    """Return relative to the group's mean, in its standard deviations. See :mod:`starpo.algorithms.group`."""
    return _per_trajectory(
        batch,
        group.grpo(
            batch.returns(),
            batch.group_ids,
            divide_by_std=divide_by_std,
            epsilon=epsilon,
            singletons=singletons,
        ),
    )


@needs(group=True)
def dr_grpo(batch: AdvantageBatch, *, singletons: group.Singletons = "zero") -> Advantages:
    """GRPO without the division by the standard deviation; pair it with ``seq-mean-token-sum-norm``."""
    return grpo(batch, divide_by_std=False, singletons=singletons)


@needs(group=True)
def rloo(batch: AdvantageBatch, *, singletons: group.Singletons = "zero") -> Advantages:
    """Return minus the mean of the other members. See :mod:`starpo.algorithms.group`."""
    return _per_trajectory(batch, group.rloo(batch.returns(), batch.group_ids, singletons=singletons))


def reinforce_plus_plus(batch: AdvantageBatch, *, gamma: float = 1.0) -> Advantages:
    """Whitened discounted returns, no baseline. See :mod:`starpo.algorithms.reinforce`."""
    return reinforce.reinforce_plus_plus(batch.token_rewards(), batch.mask, gamma=gamma)


@needs(group=True)
def reinforce_plus_plus_baseline(
    batch: AdvantageBatch, *, singletons: group.Singletons = "zero"
) -> Advantages:
    """Return minus the group's mean, whitened over the batch. See :mod:`starpo.algorithms.group`."""
    returns = batch.returns()
    advantages = group.reinforce_plus_plus_baseline(
        returns, batch.group_ids, batch.mask, singletons=singletons
    )
    return Advantages(advantages, group.broadcast_to_tokens(returns, batch.mask))


@needs(group=True)
def gigpo(
    batch: AdvantageBatch,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    divide_by_std: bool = True,
) -> Advantages:
    """GRPO plus a comparison of turns from the same state. See :mod:`starpo.algorithms.gigpo`.

    A KL penalty in the reward is charged to its turn.
    """
    anchors = _need(batch.anchors, "anchor ids", "gigpo")
    rewards = masked(batch.turn_rewards, batch.turn_mask)
    if batch.kl_rewards is not None:
        turn = torch.where(batch.mask, batch.turn_index, 0)
        rewards = rewards.scatter_add(1, turn, masked(batch.kl_rewards, batch.mask).to(rewards.dtype))
    turn_advantages = anchored.gigpo(
        rewards,
        batch.turn_mask,
        batch.group_ids,
        anchors,
        gamma=gamma,
        step_weight=step_weight,
        divide_by_std=divide_by_std,
    )
    spread = anchored.turns_to_tokens(turn_advantages, batch.turn_index, batch.mask)
    returns = anchored.turn_returns(rewards, batch.turn_mask, gamma=gamma)
    return Advantages(spread, anchored.turns_to_tokens(returns, batch.turn_index, batch.mask))

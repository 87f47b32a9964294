"""REINFORCE-style estimators without critic and without groups."""

from __future__ import annotations

import torch
from torch import Tensor

from starpo.algorithms.gae import Advantages, check_unit_interval, gae
from starpo.algorithms.masking import masked_whiten


def discounted_returns(token_rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Discounted sum of rewards from each sampled token on: G_t = r_t + gamma G_t', t' the next sampled
    token.

    Args:
        token_rewards: float [B, T], ignored outside the mask.
        mask: bool [B, T].
        gamma: discount per sampled token, in [0, 1].

    Returns:
        float [B, T], 0 outside the mask.

    Example: rewards ``[[0, nan, 1]]``, mask ``[[1, 0, 1]]``, gamma 0.5 give ``[[0.5, 0, 1]]``.
    """
    check_unit_interval(gamma=gamma)
    return gae(token_rewards, torch.zeros_like(token_rewards), mask, gamma=gamma, lam=1.0).returns


def reinforce_plus_plus(token_rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Advantages:
    """REINFORCE++: discounted returns per token, whitened over the batch's sampled tokens (arXiv 2501.03262).

    Returns:
        Whitened advantages and the returns before whitening, both [B, T].
    """
    returns = discounted_returns(token_rewards, mask, gamma=gamma)
    return Advantages(masked_whiten(returns, mask), returns)

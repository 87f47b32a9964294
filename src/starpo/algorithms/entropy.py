"""Log-probabilities of chosen tokens and exact entropy of the next-token distribution, from logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask


class TokenDistribution(NamedTuple):
    """Both are float32 (float64 for float64 logits), 0 outside the mask, and differentiable."""

    logp: Tensor
    """[...], natural log-probability of the label."""
    entropy: Tensor
    """[...], in nats."""


def token_distribution(
    logits: Tensor, labels: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> TokenDistribution:
    """Log-probability of each label and entropy of each distribution, from one log-softmax.

        log p = log_softmax(logits / temperature),   H = -sum_v p_v log p_v,  with 0 log 0 = 0

    bfloat16 and float16 logits are converted to float32 first: a bfloat16 log-probability is off by up to 1
    %. A logit of -inf (a forbidden token) has probability 0 and adds nothing to the entropy or its gradient.

    Args:
        logits: float [..., V]; logits[..., t, :] must already be those that predict labels[..., t].
        labels: int64 [...]; ignored outside the mask, also when out of range (such as -100).
        mask: bool [...]; everywhere by default.
        temperature: that of the sampling, above 0.

    Raises:
        ValueError: temperature not positive, or shapes that differ.

    Example: logits ``[[0., 0., -inf]]``, label ``[1]`` give logp ``[-0.6931]`` and entropy ``[0.6931]``.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels must have shape {tuple(logits.shape[:-1])}, got {tuple(labels.shape)}")
    if mask is not None:
        check_mask(mask, labels)
        logits = torch.where(mask[..., None], logits, 0.0)
        labels = torch.where(mask, labels, 0)
    exact = logits if logits.dtype is torch.float64 else logits.float()
    log_p = torch.log_softmax(exact / temperature, dim=-1)
    logp = log_p.gather(-1, labels[..., None]).squeeze(-1)
    # The inner where keeps 0 * -inf out of the product and out of its gradient.
    entropy = -(log_p.exp() * torch.where(log_p.isinf(), 0.0, log_p)).sum(dim=-1)
    if mask is not None:
        logp, entropy = torch.where(mask, logp, 0.0), torch.where(mask, entropy, 0.0)
    return TokenDistribution(logp, entropy)

"""Log-probabilities of chosen tokens and exact entropy of the next-token distribution, from logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask

CHUNK_ELEMENTS = 1 << 20
"""Logits handled at a time: 4 MiB in float32, so that the temporaries of a chunk stay in a CPU's cache and
amount to nothing beside the logits of a large vocabulary."""


class TokenDistribution(NamedTuple):
    """Both are float32 (float64 for float64 logits), 0 outside the mask, and differentiable once."""

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
    Beside the logits and, in the backward pass, their gradient, both in the dtype given, nothing of the
    vocabulary's size is kept: float32 exists for ``CHUNK_ELEMENTS`` logits at a time.

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
        chosen = token_distribution(logits[mask], labels[mask], temperature=temperature)
        return TokenDistribution(*(_spread(values, mask) for values in chosen))
    flat = logits.reshape(-1, logits.shape[-1])
    logp, entropy = _TokenDistribution.apply(flat, labels.reshape(-1), temperature)
    return TokenDistribution(logp.view(labels.shape), entropy.view(labels.shape))


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


class _TokenDistribution(torch.autograd.Function):
    """With z = logits / T and p = softmax(z):

    d log p_l / dz_v = [v = l] - p_v,   dH / dz_v = -p_v (log p_v + H)
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        exact = torch.float64 if logits.dtype is torch.float64 else torch.float32
        logp, entropy = (torch.empty(len(logits), dtype=exact, device=logits.device) for _ in range(2))
        for rows in _chunks(logits):
            log_p = torch.log_softmax(logits[rows].to(exact) / temperature, dim=-1)
            logp[rows] = log_p.gather(-1, labels[rows, None]).squeeze(-1)
            # Finite where p = 0, so that the product is 0 there and not NaN.
            entropy[rows] = -(log_p.exp() * log_p.clamp(min=torch.finfo(exact).min)).sum(dim=-1)
        ctx.save_for_backward(logits, labels, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None) -> tuple[Tensor, None, None]:
        logits, labels, entropy = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for rows in _chunks(logits):
            log_p = torch.log_softmax(logits[rows].to(entropy.dtype) / ctx.temperature, dim=-1)
            p = log_p.exp()
            part = torch.zeros_like(p)
            if of_entropy is not None:
                bounded = log_p.clamp(min=torch.finfo(log_p.dtype).min)
                part -= p * (bounded + entropy[rows, None]) * of_entropy[rows, None]
            if of_logp is not None:
                part -= p * of_logp[rows, None]
                part.scatter_add_(-1, labels[rows, None], of_logp[rows, None])
            gradient[rows] = (part / ctx.temperature).to(gradient.dtype)
        return gradient, None, None


def _chunks(logits: Tensor) -> list[slice]:
    step = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    return [slice(start, start + step) for start in range(0, len(logits), step)]

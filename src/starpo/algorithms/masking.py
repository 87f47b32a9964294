"""Sums, means, whitening and loss aggregation over sampled tokens only.

Masking is selection (``torch.where``), never multiplication: ``nan * 0`` is ``nan``, so a product would let
one undefined value outside the mask spoil the loss or its gradient.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

AggregationMode = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]

WHITEN_EPSILON = 1e-8
"""Added to the variance before its root, so that equal values whiten to 0 instead of 0/0."""


def check_mask(mask: Tensor, *others: Tensor | None) -> None:
    """Raise unless ``mask`` is boolean and every other tensor has its shape.

    Raises:
        TypeError: ``mask`` is not a boolean tensor (an integer mask would index instead of select).
        ValueError: a shape differs.
    """
    if mask.dtype is not torch.bool:
        raise TypeError(f"mask must have dtype torch.bool, got {mask.dtype}; convert it with mask.bool()")
    for other in others:
        if other is not None and other.shape != mask.shape:
            raise ValueError(
                f"expected a tensor shaped like the mask {tuple(mask.shape)}, got {tuple(other.shape)}"
            )


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` where the mask is True, 0 elsewhere, with no gradient to the elements left out."""
    check_mask(mask, values)
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the selected values, over everything or over one dimension; 0 where nothing is selected.

    Example: values ``[[1, nan]]``, mask ``[[True, False]]`` give 1.
    """
    kept = masked(values, mask)
    return kept.sum() if dim is None else kept.sum(dim=dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the selected values; 0, not NaN, where nothing is selected.

    Example: values ``[[1, 3, nan]]``, mask ``[[True, True, False]]`` give 2.
    """
    count = mask.sum() if dim is None else mask.sum(dim=dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """Variance of the selected values over the whole tensor; 0 for fewer than two values.

    ``unbiased`` divides by n - 1, else by n.
    """
    count = mask.sum()
    squares = masked_sum((values - masked_mean(values, mask)) ** 2, mask)
    return squares / (count - 1 if unbiased else count).clamp(min=1)


def masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Shift and scale the selected values to mean 0 and unbiased variance 1; 0 outside the mask.

    With no selected value the result is all 0; with one it is 0 there (its deviation from itself), so that a
    batch of one token is an ordinary outcome.

    Example: values ``[[1, 3, nan]]``, mask ``[[True, True, False]]`` give ``[[-0.7071, 0.7071, 0]]``.
    """
    mean = masked_mean(values, mask)
    scaled = (values - mean) * torch.rsqrt(masked_var(values, mask) + WHITEN_EPSILON)
    return masked(scaled, mask)


def aggregate(
    loss: Tensor,
    mask: Tensor,
    mode: AggregationMode = "token-mean",
    *,
    total_tokens: float | Tensor | None = None,
    total_sequences: float | Tensor | None = None,
    lengths: Tensor | None = None,
    length_norm: float | None = None,
) -> Tensor:
    """Reduce a per-token loss to a scalar.

    With row sums S_i = sum over t of m_it l_it and row lengths n_i:

    * ``token-mean``: sum_i S_i / total_tokens (DAPO, arXiv 2503.14476; RAGEN's default);
    * ``seq-mean-token-sum``: sum_i S_i / total_sequences;
    * ``seq-mean-token-mean``: sum_i (S_i / n_i) / total_sequences (GRPO, arXiv 2402.03300, eq. 3);
    * ``seq-mean-token-sum-norm``: sum_i S_i / (total_sequences * length_norm), a constant length instead of
      the row's own (Dr. GRPO, arXiv 2503.20783).

    The totals are those of the whole optimiser step. Given them, the sum of this function over any split in
    micro-batches and ranks is the loss of the undivided batch, whatever the number of tokens in each part.
    (A framework that averages gradients over ranks needs the result times the number of ranks.)

    Args:
        loss: float [B, T].
        mask: bool [B, T].
        total_tokens: sampled tokens in the whole step; by default those of this call.
        total_sequences: rows with a sampled token in the whole step; by default those of this call.
        lengths: [B], the row lengths n_i, where rows are parts of longer ones; by default those of this call.
        length_norm: tokens; only for ``seq-mean-token-sum-norm``, by default T.

    Returns:
        A scalar, 0 (with zero gradients) if nothing is sampled.

    Raises:
        ValueError: unknown mode, or a total that is not positive although tokens are sampled.

    Example:
        ``aggregate(tensor([[1., 2., 3.], [5., nan, nan]]), mask)`` with the NaNs masked is 11 / 4;
        ``seq-mean-token-mean`` gives (2 + 5) / 2.
    """
    if mode not in get_args(AggregationMode):
        raise ValueError(f"unknown aggregation mode {mode!r}; known: {', '.join(get_args(AggregationMode))}")
    here = mask.sum(dim=-1)
    sums = masked_sum(loss, mask, dim=-1)
    if mode == "seq-mean-token-mean":
        sums = sums / (here if lengths is None else lengths).clamp(min=1)
    per_token = mode == "token-mean"
    total = total_tokens if per_token else total_sequences
    if total is None:
        total = here.sum() if per_token else (here > 0).sum()
        total = total.clamp(min=1)
    elif float(total) <= 0:
        if bool(mask.any()):
            name = "total_tokens" if per_token else "total_sequences"
            raise ValueError(f"{name} must be positive when tokens are sampled, got {float(total)}")
        total = 1
    if mode == "seq-mean-token-sum-norm":
        norm = mask.shape[-1] if length_norm is None else length_norm
        if norm <= 0:
            raise ValueError(f"length_norm must be a positive number of tokens, got {norm}")
        total = total * norm
    return sums.sum() / total

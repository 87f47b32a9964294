"""The critic's clipped regression loss per token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask, masked


@dataclass(frozen=True)
class ValueLoss:
    """A value loss and its diagnostic; both [B, T]."""

    loss: Tensor
    """float, 0 outside the mask; carries the gradient."""
    clipped: Tensor
    """bool, tokens whose loss is that of the clipped prediction; no gradient."""


def value_loss(
    predictions: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None = 0.5
) -> ValueLoss:
    """Half the squared error, pessimistic under a clip of the step away from the old value.

        l = 1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)

    Source: the PPO reference implementation; RAGEN's c is 0.5. ``clip=None`` is the plain squared error. Mind
    the scale: with returns of about 10 (Sokoban) and c = 0.5, a new critic moves half a unit per update.

    Args:
        predictions: float [B, T], the critic being trained; carries the gradient.
        old_values: float [B, T], its values when the advantages were computed.
        returns: float [B, T], targets.
        mask: bool [B, T].
        clip: largest useful change, in units of the return; None for none.

    Raises:
        ValueError: ``clip`` is not positive, or shapes differ.

    Example: V = 2, V_old = 0, R = 3, c = 0.5 gives 1/2 (0.5 - 3)^2 = 3.125, clipped.
    """
    if clip is not None and clip <= 0:
        raise ValueError(f"clip must be positive, got {clip}; None switches it off")
    check_mask(mask, predictions, old_values, returns)
    value, target = masked(predictions, mask), masked(returns, mask).detach()
    squares = (value - target) ** 2
    if clip is None:
        return ValueLoss(0.5 * squares, torch.zeros_like(mask))
    old = masked(old_values, mask).detach()
    clipped_squares = (torch.clamp(value, old - clip, old + clip) - target) ** 2
    return ValueLoss(0.5 * torch.maximum(squares, clipped_squares), mask & (clipped_squares > squares))

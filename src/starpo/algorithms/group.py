"""Group-relative advantages: the other attempts at the same task are the baseline; no critic.

Every function takes one return per trajectory and the group each belongs to, in any order, groups of any
size. Statistics are taken in float64, and a spread below rounding is no spread: returns are sums over turns, so
equal ones may differ in their last bits, which a division by their own spread would blow up to advantages.

A group of one has no baseline. Its advantage is 0; with ``singletons="raw"`` it is the raw return (plain
REINFORCE, which still learns, but beside advantages that are differences it weighs far too much).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask, masked, masked_whiten

Singletons = Literal["raw", "zero"]

GRPO_EPSILON = 1e-6
"""Added to a group's standard deviation before dividing by it."""

ROUNDING_SPREAD = 1e-9
"""A std below this share of the group's largest |return| is rounding noise of the sum over turns."""


class GroupStatistics(NamedTuple):
    """Per-trajectory statistics of the trajectory's own group, all float64 or int64 [N]."""

    mean: Tensor
    deviation: Tensor
    """Return minus mean; 0 in a group without spread."""
    std: Tensor
    """Unbiased (divided by n - 1); 0 in a group without spread, and so for a group of one."""
    size: Tensor


def group_statistics(returns: Tensor, group_ids: Tensor) -> GroupStatistics:
    """Mean, deviation from it, unbiased standard deviation and size of each trajectory's group.

    A group whose standard deviation is at most ``ROUNDING_SPREAD`` of its largest |return| has no spread.

    Args:
        returns: float [N].
        group_ids: integer [N], any labels.

    Raises:
        ValueError: the two are not vectors of equal length.

    Example: returns ``[1, 3, 5]``, groups ``[7, 7, 2]`` give means ``[2, 2, 5]``, stds ``[1.414, 1.414, 0]``.
    """
    if returns.dim() != 1 or returns.shape != group_ids.shape:
        shapes = f"{tuple(returns.shape)} and {tuple(group_ids.shape)}"
        raise ValueError(f"returns and group_ids must be vectors of one length, got {shapes}")
    exact = returns.double()
    _, index, counts = group_ids.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), dtype=torch.float64, device=returns.device)
    mean = (sums.index_add(0, index, exact) / counts)[index]
    deviation = exact - mean
    std = (sums.index_add(0, index, deviation**2) / (counts - 1).clamp(min=1)).sqrt()
    largest = sums.scatter_reduce(0, index, exact.abs(), "amax")
    std = torch.where(std > ROUNDING_SPREAD * largest, std, 0.0)[index]
    return GroupStatistics(mean, torch.where(std > 0, deviation, 0.0), std, counts[index])


def _with_singletons(relative: Tensor, returns: Tensor, size: Tensor, singletons: Singletons) -> Tensor:
    if singletons not in get_args(Singletons):
        raise ValueError(f"singletons must be one of {', '.join(get_args(Singletons))}, got {singletons!r}")
    alone = returns.double() if singletons == "raw" else torch.zeros_like(relative)
    return torch.where(size > 1, relative, alone)


@torch.no_grad()
def grpo(
    returns: Tensor,
    group_ids: Tensor,
    *,
    divide_by_std: bool = True,
    epsilon: float = GRPO_EPSILON,
    singletons: Singletons = "zero",
) -> Tensor:
    """GRPO: A_i = (R_i - mean(group)) / (std(group) + epsilon) (arXiv 2402.03300).

    Without ``divide_by_std`` it is Dr. GRPO's A_i = R_i - mean(group) (arXiv 2503.20783), which does not
    weigh a group up because its members happen to agree.

    Returns:
        float [N], dtype of ``returns``; 0 in a group whose members are equal.

    Example: returns ``[0, 1, 5]``, groups ``[0, 0, 1]`` give about ``[-0.7071, 0.7071, 0]``.
    """
    stats = group_statistics(returns, group_ids)
    relative = stats.deviation
    if divide_by_std:
        relative = relative / (stats.std + epsilon)
    return _with_singletons(relative, returns, stats.size, singletons).to(returns.dtype)


@torch.no_grad()
def rloo(returns: Tensor, group_ids: Tensor, *, singletons: Singletons = "zero") -> Tensor:
    """RLOO: A_i = R_i - mean of the other members = (R_i - mean) n / (n - 1) (arXiv 2402.14740).

    Returns:
        float [N], dtype of ``returns``.

    Example: returns ``[0, 1, 2]`` of one group give ``[-1.5, 0, 1.5]``.
    """
    stats = group_statistics(returns, group_ids)
    relative = stats.deviation * stats.size / (stats.size - 1).clamp(min=1)
    return _with_singletons(relative, returns, stats.size, singletons).to(returns.dtype)


def broadcast_to_tokens(advantages: Tensor, mask: Tensor) -> Tensor:
    """Give every sampled token its trajectory's advantage: float [B] and bool [B, T] -> float [B, T].

    Example: ``[2., 3.]`` with mask ``[[1, 0], [1, 1]]`` gives ``[[2, 0], [3, 3]]``.
    """
    check_mask(mask)
    if advantages.shape != mask.shape[:1]:
        raise ValueError(
            f"expected one advantage per row, {mask.shape[0]}, got shape {tuple(advantages.shape)}"
        )
    return masked(advantages[:, None].expand(mask.shape), mask)


@torch.no_grad()
def reinforce_plus_plus_baseline(
    returns: Tensor, group_ids: Tensor, mask: Tensor, *, singletons: Singletons = "zero"
) -> Tensor:
    """REINFORCE++ with group baseline: R_i - mean(group) on every token, whitened over the batch's tokens.

    Source: arXiv 2501.03262. Whitening over the whole batch, not
    within the group, is what distinguishes it from GRPO.

    Returns:
        float [B, T], 0 outside the mask.
    """
    stats = group_statistics(returns, group_ids)
    relative = _with_singletons(stats.deviation, returns, stats.size, singletons)
    return masked_whiten(broadcast_to_tokens(relative, mask), mask).to(returns.dtype)

"""Normalising trajectory returns before the advantages are taken (RAGEN's ``reward_normalization``).

The result is a new tensor: filters and reports keep working on the raw returns.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from starpo.algorithms.group import GRPO_EPSILON, group_statistics

NormMethod = Literal["identity", "mean", "mean_std", "asym_clip"]

ASYMMETRIC_BOUNDS = (-1.0, 3.0)
"""Bounds of ``asym_clip``, in standard deviations: a rare success counts more than a rare failure."""


@torch.no_grad()
def normalize_returns(
    returns: Tensor, group_ids: Tensor, method: NormMethod = "identity", *, epsilon: float = GRPO_EPSILON
) -> Tensor:
    """Normalise each return within its group.

    * ``identity``: R;
    * ``mean``: R - mean(group);
    * ``mean_std``: (R - mean(group)) / (std(group) + epsilon), the unbiased std;
    * ``asym_clip``: ``mean_std`` held within [-1, 3].

    What a group is, the caller says: the task (RAGEN's ``state``), the whole batch (equal ids everywhere,
    ``batch``) or the kind of environment (``inductive``). A group of one has no scale of its own and keeps
    its return, whatever else is in the batch. A group without spread becomes 0; where the method divides by the
    std, so does one whose std is not above ``epsilon``.

    Args:
        returns: float [N], penalties included.
        group_ids: integer [N].
        method: see above.
        epsilon: added to the standard deviation.

    Returns:
        float [N], dtype of ``returns``, not sharing its memory.

    Raises:
        ValueError: unknown method, or lengths that differ.

    Example: returns ``[1, 3]`` of one group give ``[-1, 1]`` by ``mean`` and ``[-0.707, 0.707]`` by
    ``mean_std``.
    """
    if method not in get_args(NormMethod):
        raise ValueError(f"unknown normalisation {method!r}; known: {', '.join(get_args(NormMethod))}")
    stats = group_statistics(returns, group_ids)
    exact = returns.double()
    if method == "identity":
        return returns.clone()
    relative = stats.deviation
    if method != "mean":
        relative = torch.where(stats.std > epsilon, relative / (stats.std + epsilon), 0.0)
    if method == "asym_clip":
        relative = relative.clamp(*ASYMMETRIC_BOUNDS)
    return torch.where(stats.size > 1, relative, exact).to(returns.dtype)

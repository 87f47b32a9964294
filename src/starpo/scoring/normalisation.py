"""The rewards that are learned from where returns are normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from starpo.config.reward import NormalizeConfig


def learned_rewards(scored: Sequence[dict[str, Any]], normalize: NormalizeConfig | None) -> list[list[float]]:
    """Per trajectory its rewards per turn, which add up to its normalised return.

    The return R becomes N (:func:`starpo.algorithms.reward_norm.normalize_returns`), with means and standard
    deviations over the trajectories that are not quarantined, before the filter. Rewards keep their shares of the
    turns: each is divided by the standard deviation where the method divides, and what is still lacking to N falls on
    the last turn. With one turn, as where all reward comes at the end, this is RAGEN's rule.

    Args:
        scored: rows with ``turn_rewards``, ``return``, ``quarantined``, ``group`` and ``environment``.
        normalize: method and whose mean; None: the rewards as they are.

    Returns:
        A list per row; that of a quarantined row as it is, for nothing is learned from it.

    Example: returns 1 and 3 of one group, from ``[0, 1]`` and ``[1, 2]``, by ``mean``: ``[0, -1]`` and ``[1, 0]``.
    """
    learned = [list(row["turn_rewards"]) for row in scored]
    usable = [number for number, row in enumerate(scored) if not row["quarantined"]]
    if normalize is None or not usable:
        return learned
    import torch  # noqa: PLC0415 - takes long

    from starpo.algorithms.group import GRPO_EPSILON, group_statistics  # noqa: PLC0415
    from starpo.algorithms.reward_norm import normalize_returns  # noqa: PLC0415

    column = {"group": "group", "environment": "environment"}.get(normalize.over)
    labels = ["" if column is None else scored[number][column] for number in usable]
    ids = torch.from_numpy(np.unique(np.array(labels), return_inverse=True)[1])
    returns = torch.tensor([scored[number]["return"] for number in usable], dtype=torch.float64)
    wanted = normalize_returns(returns, ids, normalize.method)
    statistics = group_statistics(returns, ids)
    divided = (statistics.std > GRPO_EPSILON) & (normalize.method != "mean")
    scales = torch.where(divided, 1 / (statistics.std + GRPO_EPSILON), 1.0)
    for number, target, scale in zip(usable, wanted.tolist(), scales.tolist(), strict=True):
        own = [scale * reward for reward in learned[number]]
        own[-1] += target - sum(own)
        learned[number] = own
    return learned

"""Which environment each group plays where a run trains on several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starpo.seeds import SeedKey


def group_counts(weights: Sequence[float], groups: int) -> list[int]:
    """Groups per environment by largest remainder: whole numbers that sum to ``groups``, each within 1 of its share.

    Equal remainders go to the earlier environment.

    >>> group_counts([0.5, 0.3, 0.2], 4)
    [2, 1, 1]
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights) * groups
    # Shares that are whole but for rounding count as whole.
    whole = np.floor(shares + 1e-9)
    order = np.argsort(-np.round(shares - whole, 9), kind="stable")
    whole[order[: groups - int(whole.sum())]] += 1
    return [int(count) for count in whole]


def deal(weights: Sequence[float], groups: int, key: SeedKey) -> list[int]:
    """Number of the environment that each group plays: exact counts in an order that ``key`` draws."""
    dealt = np.repeat(np.arange(len(weights)), group_counts(weights, groups))
    return [int(number) for number in key.generator().permutation(dealt)]

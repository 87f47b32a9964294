"""Choosing which groups of trajectories are worth an update, by the spread of their returns (StarPO-S).

A group whose attempts all earn the same says nothing about which attempt was better; a group that sometimes
succeeds and sometimes fails says most (RAGEN, arXiv 2504.20073: keep the fraction of prompts
with the highest standard deviation of the return). Whole groups are kept or dropped, on raw returns:
normalised ones have equal spread by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from starpo.algorithms.group import group_statistics

FilterMode = Literal["std", "low_std", "random", "top_p", "threshold"]
Reason = Literal["kept", "single_member", "zero_spread", "low_spread", "beyond_keep_ratio"]

TIE_DIGITS = 12
"""Spreads equal to this many significant digits tie: those of [0, 1, 3] and [-1, 0, 2] differ by rounding."""


@dataclass(frozen=True)
class FilterResult:
    """The decision per group; arrays have one entry per group, in increasing order of group id."""

    group_ids: NDArray[np.int64]
    size: NDArray[np.int64]
    """Trajectories in the group."""
    mean: NDArray[np.float64]
    """Mean raw return."""
    std: NDArray[np.float64]
    """Unbiased standard deviation of the raw return; 0 for a group of one."""
    kept: NDArray[np.bool_]
    reasons: tuple[Reason, ...]
    """Why each group was kept or dropped:

    * ``kept``;
    * ``single_member``: one attempt, hence no spread;
    * ``zero_spread``: all attempts earned the same;
    * ``low_spread``: some spread, not above ``min_std``;
    * ``beyond_keep_ratio``: spread enough, but other groups rank before it.
    """

    @property
    def kept_groups(self) -> tuple[int, ...]:
        """Ids of the kept groups, increasing; empty if all were filtered, a normal outcome."""
        return tuple(int(group) for group in self.group_ids[self.kept])

    def keeps(self, group: ArrayLike) -> NDArray[np.bool_]:
        """Whether each trajectory is kept: integer [N] -> bool [N]."""
        return np.isin(np.asarray(group), self.group_ids[self.kept])


def select_groups(
    returns: ArrayLike,
    group: ArrayLike,
    *,
    keep_ratio: float,
    mode: FilterMode = "std",
    min_std: float = 0.0,
    keep_zero_spread: bool = False,
    lot: Callable[[int], float] | None = None,
) -> FilterResult:
    """Keep the groups whose returns spread most.

    Groups are ranked by the unbiased standard deviation s_g of their members' raw returns, equal ones (to
    12 digits) by group id. Modes:

    * ``std``: the first floor(keep_ratio x groups) of the ranking, but at least one if any group has spread
      (RAGEN's rule, whose plain floor trains nothing when it rounds to 0). The share is of all groups, not of
      those with spread, so the size of an update is predictable;
    * ``low_std``: the same number from the other end of the ranking: a control experiment;
    * ``random``: the same number by lot: the control that has the smaller batch without the selection. With
      ``keep_zero_spread`` the lot is drawn among all groups, else among those with spread;
    * ``top_p``: the shortest head of the ranking that holds at least ``keep_ratio`` of the sum of all s_g;
    * ``threshold``: every group with s_g > ``min_std``; ``keep_ratio`` must be 1 (DAPO's dynamic sampling at
      ``min_std`` 0, arXiv 2503.14476).

    A group without spread is never kept to fill a quota. ``keep_zero_spread`` ranks such groups after (in
    ``low_std`` before) all others instead of dropping them: with ``keep_ratio`` 1 and mode ``std`` that is no
    filter at all, as plain StarPO needs.

    Args:
        returns: float [N], raw trajectory returns (before any normalisation).
        group: integer [N], the group of each.
        keep_ratio: in (0, 1].
        mode: see above.
        min_std: least spread, in units of the return; groups with spread not above it are ``low_spread``.
        keep_zero_spread: whether groups without spread may be kept; they are exempt from ``min_std``.
        lot: a group's id -> its number in mode ``random``, which keeps the lowest ones.

    Raises:
        ValueError: keep_ratio outside (0, 1], unknown mode, negative min_std, ``threshold`` with another
            keep_ratio than 1, ``random`` without ``lot``, lengths that differ, or a return that is not finite
            (such a trajectory should have been quarantined).

    Example:
        >>> select_groups([0, 10, 5, 5, 1, 2, 3, 3], [0, 0, 1, 1, 2, 2, 3, 3], keep_ratio=0.5).kept_groups
        (0, 2)
    """
    _check(keep_ratio, mode, min_std)
    values = np.asarray(returns, dtype=np.float64)
    labels = np.asarray(group)
    if values.ndim != 1 or values.shape != labels.shape:
        raise ValueError(
            f"returns and group must be vectors of one length, got {values.shape} and {labels.shape}"
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"return of trajectory {bad[0]} (group {labels[bad[0]]}) is {values[bad[0]]}, not finite"
        )

    # Sums in a fixed order, so that the result does not depend on the order of the trajectories.
    order = np.lexsort((values, labels))
    ids, first, size = np.unique(labels[order], return_index=True, return_counts=True)
    statistics = group_statistics(torch.from_numpy(values[order]), torch.from_numpy(labels[order]))
    mean, std = statistics.mean.numpy()[first], statistics.std.numpy()[first]
    has_spread = std > 0

    eligible = has_spread & (std > min_std)
    if keep_zero_spread:
        eligible |= ~has_spread
    kept = np.zeros(len(ids), dtype=bool)
    key = _significant(std)
    if mode == "random":
        if lot is None:
            raise ValueError("mode 'random' needs lot, a number for each group")
        key = -np.array([lot(int(group)) for group in ids])
    kept[_choose(key, std, eligible, keep_ratio, mode)] = True
    reasons = tuple(
        _reason(*flags)
        for flags in zip(kept.tolist(), size.tolist(), has_spread.tolist(), eligible.tolist(), strict=True)
    )
    return FilterResult(ids.astype(np.int64), size.astype(np.int64), mean, std, kept, reasons)


def _check(keep_ratio: float, mode: str, min_std: float) -> None:
    if not 0.0 < keep_ratio <= 1.0:
        raise ValueError(f"keep_ratio must be in (0, 1], got {keep_ratio}")
    if mode not in get_args(FilterMode):
        raise ValueError(f"unknown filter mode {mode!r}; known: {', '.join(get_args(FilterMode))}")
    if not min_std >= 0.0:
        raise ValueError(f"min_std must not be negative, got {min_std}")
    if mode == "threshold" and keep_ratio != 1.0:
        raise ValueError(
            f"mode 'threshold' keeps every group above min_std; keep_ratio must be 1, got {keep_ratio}"
        )


def _choose(
    key: NDArray[np.float64],
    std: NDArray[np.float64],
    eligible: NDArray[np.bool_],
    keep_ratio: float,
    mode: FilterMode,
) -> NDArray[np.intp]:
    """Positions of the groups to keep, ranked by ``key``."""
    # A stable sort leaves equal spreads in order of group id.
    ranking = np.argsort(key if mode == "low_std" else -key, kind="stable")
    ranking = ranking[eligible[ranking]]
    if mode == "threshold":
        return ranking
    if mode == "top_p":
        share = np.cumsum(std[ranking])
        if not len(share) or share[-1] == 0.0:
            return ranking
        # The tolerance keeps rounding of the running sum from asking for one group more.
        return ranking[: np.searchsorted(share, keep_ratio * share[-1] * (1.0 - 1e-12)) + 1]
    # 0.29 * 100 is 28.999999999999996; the added bit makes it the 29 that was meant.
    quota = math.floor(keep_ratio * len(std) + 1e-9)
    return ranking[: max(1, quota)]


def _significant(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to ``TIE_DIGITS`` significant digits, for comparisons only."""
    mantissa, exponent = np.frexp(spread)
    return np.ldexp(np.round(mantissa, TIE_DIGITS), exponent)


def _reason(kept: bool, size: int, has_spread: bool, eligible: bool) -> Reason:
    if kept:
        return "kept"
    if eligible:
        return "beyond_keep_ratio"
    if size == 1:
        return "single_member"
    return "low_spread" if has_spread else "zero_spread"

"""Means, paired differences and pass@k with 95 % intervals.

Several samples of one prompt are not independent, so every interval treats the *prompt* as the unit: it is a
statement about other prompts of the same kind, with this many samples each.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
"""Two-sided level of every interval."""


class Interval(NamedTuple):
    """An estimate with its interval; the bounds are infinite where a single prompt allows none."""

    estimate: float
    low: float
    high: float


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution; infinite for 0 degrees of freedom.

    Example: ``t_quantile(0.975, 255)`` is 1.969.
    """
    if degrees < 1:
        return math.copysign(math.inf, probability - 0.5)
    return float(stdtrit(degrees, probability))


def mean_interval(values: ArrayLike, prompts: ArrayLike) -> Interval:
    """Mean over samples with a cluster-robust t interval.

    With residual sums r_g = sum over the samples of prompt g of (x - mean), the variance of the mean of N
    samples in G prompts is G / (G - 1) * sum_g r_g^2 / N^2 (CR1), with G - 1 degrees of freedom. One sample
    per prompt gives the ordinary t interval.

    Args:
        values: float [N].
        prompts: integer [N], the prompt of each sample.

    Raises:
        ValueError: no samples, unequal lengths or a value that is not finite.
    """
    x, groups = _samples(values, prompts)
    mean = float(x.mean())
    variance = cluster_variance(x - mean, groups)
    half = t_quantile(0.5 + CONFIDENCE / 2, len(np.unique(groups)) - 1) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)


def proportion_interval(successes: ArrayLike, prompts: ArrayLike) -> Interval:
    """Success rate with a Wilson score interval.

    A t interval of a rate near 0 or 1 is too short and collapses to a point at 0 of n. Wilson's does neither,
    and its coverage is closer to 95 % on average than that of the "exact" (Clopper-Pearson) interval, which
    is too wide by design. So with one binary sample per prompt this is Wilson's interval of n = G.

    With several samples per prompt n is the *effective* number of samples (Korn and Graubard 1998):
    p (1 - p) / (cluster-robust variance of p), at most N, times (z / t_{G-1})^2 for having estimated that
    variance. Where p is 0 or 1 nothing is known about the correlation and n is G, as if a prompt's samples
    were copies.

    Args:
        successes: bool or 0/1 [N].
        prompts: integer [N].

    Example: 0 of 256 prompts solved gives 0 with [0, 0.0148].
    """
    x, groups = _samples(successes, prompts)
    if not np.isin(x, (0.0, 1.0)).all():
        raise ValueError("successes must be 0 or 1")
    p, count, clusters = float(x.mean()), len(x), len(np.unique(groups))
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    if count == clusters or p in (0.0, 1.0) or clusters == 1:
        effective = float(clusters)
    else:
        variance = cluster_variance(x - p, groups)
        effective = min(p * (1 - p) / variance, count) if variance > 0 else float(count)
        effective *= (z / t_quantile(0.5 + CONFIDENCE / 2, clusters - 1)) ** 2
    centre = (p + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z * math.sqrt(p * (1 - p) / effective + z**2 / (4 * effective**2)) / (1 + z**2 / effective)
    # At p = 0 and 1 the bound is p itself; rounding must not put it on the wrong side.
    return Interval(p, min(max(centre - half, 0.0), p), max(min(centre + half, 1.0), p))


def paired_mean_difference(before: ArrayLike, after: ArrayLike, prompts: ArrayLike) -> Interval:
    """Mean of ``after - before`` on the same samples, with the interval of ``mean_interval``."""
    first, second, groups = _pairs(before, after, prompts)
    return mean_interval(second - first, groups)


def paired_rate_difference(before: ArrayLike, after: ArrayLike, prompts: ArrayLike) -> Interval:
    """Difference of two success rates on the same samples, clustered by prompt.

    Two policies that agree everywhere would get a t interval of width 0. As Agresti and Min (2005) do for
    matched pairs, two pseudo-prompts are added, half of one in each cell of the 2 x 2 table: the sum of the
    prompts' differences d_g stays, the sum of their squares grows by 1 and G by 2. With one binary sample
    per prompt this is their interval, with a t quantile (G - 1 degrees) for their normal one; with few
    prompts it is on the wide side. The estimate is the plain mean over samples; prompts weigh equally in the
    interval.

    Args:
        before: bool or 0/1 [N].
        after: bool or 0/1 [N], the same samples of the other policy.
        prompts: integer [N].

    Example: 128 prompts, 10 solved only before and 30 only after: 0.156 with [0.060, 0.248].
    """
    first, second, groups = _pairs(before, after, prompts)
    if not (np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all()):
        raise ValueError("before and after must be 0 or 1")
    _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    differences = np.bincount(index, weights=second - first) / sizes
    padded = len(sizes) + 2
    centre = float(differences.sum()) / padded
    variance = ((float(differences @ differences) + 1) / padded - centre**2) / padded
    half = t_quantile(0.5 + CONFIDENCE / 2, len(sizes) - 1) * math.sqrt(variance)
    estimate = float((second - first).mean())
    low, high = max(centre - half, -1.0), min(centre + half, 1.0)
    return Interval(estimate, min(low, estimate), max(high, estimate))


def pass_at_k(successes: ArrayLike, prompts: ArrayLike, k: int) -> Interval:
    """Chance that at least one of k samples of a prompt succeeds, averaged over prompts, with a t interval.

    Unbiased (Chen et al. 2021): with c successes among a prompt's n samples, 1 - C(n - c, k) / C(n, k).

    Raises:
        ValueError: a prompt has fewer than k samples, or k < 1.

    Example: one prompt with samples ``[1, 0, 0, 0]`` and k = 2 gives 0.5.
    """
    x, groups = _samples(successes, prompts)
    labels, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if k < 1 or sizes.min() < k:
        raise ValueError(
            f"pass@{k} needs 1 <= k <= samples per prompt; prompt {labels[sizes.argmin()]} has {sizes.min()}"
        )
    failures = sizes - np.bincount(index, weights=x)
    # C(f, k) / C(n, k) as a product of k factors (f - i) / (n - i): no large integers.
    steps = np.arange(k)
    missed = np.prod(np.clip(failures[:, None] - steps, 0, None) / (sizes[:, None] - steps), axis=1)
    result = mean_interval(1 - missed, labels)
    return Interval(result.estimate, max(result.low, 0.0), min(result.high, 1.0))


def cluster_variance(residuals: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """CR1 variance of a mean; infinite for a single cluster, whose residuals sum to 0 whatever they are."""
    _, index = np.unique(groups, return_inverse=True)
    sums = np.bincount(index, weights=residuals)
    if len(sums) < 2:
        return math.inf
    return len(sums) / (len(sums) - 1) * float(sums @ sums) / len(residuals) ** 2


def _samples(values: ArrayLike, prompts: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    x, groups = np.asarray(values, dtype=np.float64), np.asarray(prompts, dtype=np.int64)
    if x.ndim != 1 or x.shape != groups.shape:
        raise ValueError(
            f"values and prompts must be vectors of one length, got {x.shape} and {groups.shape}"
        )
    if not len(x):
        raise ValueError("no samples: an interval needs at least one")
    if not np.isfinite(x).all():
        raise ValueError(f"sample {int(np.flatnonzero(~np.isfinite(x))[0])} is not finite")
    return x, groups


def _pairs(
    before: ArrayLike, after: ArrayLike, prompts: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    first, groups = _samples(before, prompts)
    second, _ = _samples(after, prompts)
    return first, second, groups

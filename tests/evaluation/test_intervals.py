"""Known answers, and simulated coverage, of the intervals."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from starpo.evaluation.intervals import (
    Interval,
    mean_interval,
    paired_mean_difference,
    paired_rate_difference,
    pass_at_k,
    proportion_interval,
    t_quantile,
)


def covered(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


# Where F(t) is known in closed form; beyond, the asymptotic expansion that Abramowitz and Stegun give as 26.7.5.
@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (1, math.tan(0.475 * math.pi)),
        (2, 0.95 / math.sqrt(2 * 0.975 * 0.025)),
        (4, 2 * math.sqrt(math.cos(math.acos(math.sqrt(0.0975)) / 3) / math.sqrt(0.0975) - 1)),
        (63, 1.998340541772195),
        (127, 1.978819534680520),
        (255, 1.969310569849193),
    ],
)
def test_t_quantiles_are_exact(degrees: int, expected: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-9)
    assert t_quantile(0.025, degrees) == pytest.approx(-expected, rel=1e-9)


def test_no_degrees_of_freedom_leave_everything_open() -> None:
    assert (t_quantile(0.025, 0), t_quantile(0.975, 0)) == (-math.inf, math.inf)


def test_one_sample_per_prompt_gives_the_textbook_t_interval() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    half = 2.776445 * x.std(ddof=1) / math.sqrt(5)
    interval = mean_interval(x, np.arange(5))
    assert interval == pytest.approx((4.0, 4.0 - half, 4.0 + half), abs=2e-3)


def test_copies_of_a_prompts_sample_do_not_narrow_the_interval() -> None:
    x = np.array([0.3, 1.1, -0.4, 2.0, 0.0, 0.9])
    single = mean_interval(x, np.arange(6))
    copied = mean_interval(np.repeat(x, 50), np.repeat(np.arange(6), 50))
    assert copied == pytest.approx(single)


def test_order_and_labels_of_prompts_do_not_matter() -> None:
    x, prompts = np.array([0.0, 1.0, 1.0, 5.0, 2.0]), np.array([3, 3, 9, 9, 1])
    shuffled = np.array([4, 2, 0, 3, 1])
    assert mean_interval(x[shuffled], prompts[shuffled] * 100 + 7) == pytest.approx(mean_interval(x, prompts))


def test_a_single_prompt_allows_no_interval_of_a_mean() -> None:
    assert mean_interval([1.0, 2.0], [0, 0]) == (1.5, -math.inf, math.inf)


# Published Wilson score intervals: 81 of 263 (Newcombe 1998), 0 of 20 and 1 of 29 (same paper, method 3).
@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_single_samples_give_wilsons_published_intervals(
    hits: int, count: int, low: float, high: float
) -> None:
    successes = np.arange(count) < hits
    interval = proportion_interval(successes, np.arange(count))
    assert interval == pytest.approx((hits / count, low, high), abs=5e-5)


def test_no_or_only_successes_still_leave_room_for_doubt() -> None:
    none = proportion_interval(np.zeros(256), np.arange(256))
    every = proportion_interval(np.ones(256), np.arange(256))
    assert none == pytest.approx((0.0, 0.0, 0.01478), abs=1e-5)
    assert every == pytest.approx((1.0, 1 - 0.01478, 1.0), abs=1e-5)
    # 16 samples of each prompt may be 16 copies: no more certain than one each.
    many = proportion_interval(np.zeros(256 * 16), np.repeat(np.arange(256), 16))
    assert many == pytest.approx(none)


def test_correlated_samples_widen_and_independent_samples_narrow_the_rate() -> None:
    prompts = np.repeat(np.arange(100), 4)
    copies = proportion_interval(np.repeat(np.arange(100) % 2, 4), prompts)
    mixed = proportion_interval(np.tile([0, 1, 1, 0], 100), prompts)
    single = proportion_interval(np.arange(100) % 2, np.arange(100))
    assert copies.high - copies.low == pytest.approx(single.high - single.low, rel=0.02)
    assert mixed.high - mixed.low == pytest.approx((single.high - single.low) / 2, rel=0.03)


def test_matched_pairs_give_agresti_and_mins_interval() -> None:
    # 2 x 2 table with n = 128, 10 only before, 30 only after: centre 20/130, Wald of the padded table.
    before, after = np.zeros(128), np.zeros(128)
    before[:10] = 1
    after[10:40] = 1
    centre = 20 / 130
    half = 1.978820 * math.sqrt(((40 + 1) / 130 - centre**2) / 130)
    interval = paired_rate_difference(before, after, np.arange(128))
    assert interval == pytest.approx((20 / 128, centre - half, centre + half), rel=1e-4)


def test_swapping_the_policies_mirrors_the_difference() -> None:
    rng = np.random.default_rng(0)
    a, b, prompts = rng.random(60) < 0.3, rng.random(60) < 0.6, np.repeat(np.arange(20), 3)
    forth, back = paired_rate_difference(a, b, prompts), paired_rate_difference(b, a, prompts)
    assert (forth.estimate, forth.low, forth.high) == pytest.approx((-back.estimate, -back.high, -back.low))


def test_two_equal_policies_do_not_differ_with_certainty() -> None:
    interval = paired_rate_difference(np.zeros(256), np.zeros(256), np.arange(256))
    assert interval.estimate == 0
    assert interval.low < -0.005 and interval.high > 0.005


def test_pairing_removes_the_spread_between_prompts() -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(scale=10, size=200)
    after = before + 0.5 + rng.normal(scale=0.1, size=200)
    interval = paired_mean_difference(before, after, np.arange(200))
    assert covered(interval, 0.5)
    assert interval.high - interval.low < 0.04


def test_pass_at_k_equals_the_count_over_all_subsets() -> None:
    samples = [[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 1, 0, 0]]
    for k in range(1, 6):
        expected = np.mean([np.mean([max(c) for c in combinations(prompt, k)]) for prompt in samples])
        got = pass_at_k(np.ravel(samples), np.repeat(np.arange(4), 5), k)
        assert got.estimate == pytest.approx(expected)
        assert 0 <= got.low <= got.estimate <= got.high <= 1


def test_pass_at_k_takes_prompts_with_unequal_samples_and_refuses_too_few() -> None:
    values, prompts = [1, 0, 0, 0, 1], [0, 0, 0, 1, 1]
    assert pass_at_k(values, prompts, 2).estimate == pytest.approx((2 / 3 + 1) / 2)
    with pytest.raises(ValueError, match="prompt 1 has 2"):
        pass_at_k(values, prompts, 3)


def test_pass_at_k_stays_exact_for_many_samples() -> None:
    assert pass_at_k([1] + [0] * 9999, [0] * 10000, 5000).estimate == pytest.approx(0.5)


@pytest.mark.parametrize("function", [mean_interval, proportion_interval])
def test_bad_samples_are_refused(function) -> None:
    with pytest.raises(ValueError, match="no samples"):
        function([], [])
    with pytest.raises(ValueError, match="one length"):
        function([1.0, 0.0], [0])
    with pytest.raises(ValueError, match="sample 1 is not finite"):
        function([1.0, math.nan], [0, 1])


def test_rates_of_anything_but_zero_and_one_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        proportion_interval([0.5], [0])
    with pytest.raises(ValueError, match="0 or 1"):
        paired_rate_difference([0.5], [1], [0])


# Coverage of nominal 95 %: 600 experiments have a standard error of 0.9 %, so 92.5 to 99 % is what a right
# interval can show; ignoring the clusters falls far below (next test).
REPEATS = 600


def clustered_rates(rng: np.random.Generator, prompts: int, samples: int, mean: float) -> np.ndarray:
    """[prompts, samples] successes; each prompt has a beta-distributed rate, correlation 1/5 within it."""
    rates = rng.beta(4 * mean, 4 * (1 - mean), size=(prompts, 1))
    return rng.random((prompts, samples)) < rates


@pytest.mark.parametrize(("prompts", "samples"), [(256, 1), (64, 4), (20, 8)])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_interval_of_a_rate_covers_the_truth(prompts: int, samples: int, rate: float) -> None:
    rng = np.random.default_rng([prompts, samples, round(rate * 10)])
    groups = np.repeat(np.arange(prompts), samples)
    hits = [
        covered(proportion_interval(clustered_rates(rng, prompts, samples, rate).ravel(), groups), rate)
        for _ in range(REPEATS)
    ]
    assert 0.925 <= np.mean(hits) <= 0.99


def test_an_interval_that_ignores_prompts_would_not() -> None:
    rng = np.random.default_rng(3)
    hits = [
        covered(proportion_interval(clustered_rates(rng, 64, 8, 0.5).ravel(), np.arange(512)), 0.5)
        for _ in range(REPEATS)
    ]
    assert np.mean(hits) < 0.85


@pytest.mark.parametrize(("prompts", "samples"), [(256, 1), (30, 4)])
def test_the_interval_of_a_mean_covers_the_truth(prompts: int, samples: int) -> None:
    rng = np.random.default_rng([5, prompts])
    groups = np.repeat(np.arange(prompts), samples)
    hits = []
    for _ in range(REPEATS):
        values = rng.normal(size=(prompts, 1)) + rng.normal(size=(prompts, samples))
        hits.append(covered(mean_interval(values.ravel(), groups), 0.0))
    assert 0.925 <= np.mean(hits) <= 0.975


@pytest.mark.parametrize(("prompts", "samples"), [(256, 1), (40, 1), (30, 4)])
@pytest.mark.parametrize(("before", "gain"), [(0.1, 0.0), (0.3, 0.2), (0.9, 0.05)])
def test_the_interval_of_a_paired_difference_covers_the_truth(
    prompts: int, samples: int, before: float, gain: float
) -> None:
    rng = np.random.default_rng([prompts, samples, round(before * 100)])
    groups = np.repeat(np.arange(prompts), samples)
    hits = []
    for _ in range(REPEATS):
        first = clustered_rates(rng, prompts, samples, before).ravel()
        # One policy keeps the other's results on most prompts: what is common must not count as spread.
        fresh = clustered_rates(rng, prompts, samples, before).ravel()
        same = np.repeat(rng.random(prompts) < 0.6, samples)
        second = np.where(same, first, fresh)
        lift = gain / (1 - before)
        second = second | (rng.random(len(second)) < lift)
        hits.append(covered(paired_rate_difference(first, second, groups), gain))
    # The pseudo-prompts make it cautious where prompts are few.
    assert 0.925 <= np.mean(hits) <= (0.99 if prompts == 256 else 1.0)

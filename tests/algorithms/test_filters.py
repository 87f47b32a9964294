"""The group filter: which groups are kept, why the others are not, and what is refused."""

from __future__ import annotations

import loop_references as loops
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.algorithms.filters import FilterResult, select_groups
from starpo.algorithms.reward_norm import normalize_returns

WIDE, NARROW, EQUAL, OTHER_WIDE = [0.0, 10.0], [1.0, 2.0], [5.0, 5.0], [20.0, 30.0]


def choose(*groups: list[float], **options: object) -> FilterResult:
    """Filter groups numbered 0, 1, ... given as lists of returns."""
    returns = [value for group in groups for value in group]
    labels = [i for i, group in enumerate(groups) for _ in group]
    return select_groups(returns, labels, **({"keep_ratio": 0.5} | options))


def test_groups_with_the_highest_spread_are_kept_whole_and_every_reason_is_given():
    result = choose(NARROW, WIDE, EQUAL, [7.0])
    assert result.kept_groups == (0, 1)
    assert result.reasons == ("kept", "kept", "zero_spread", "single_member")
    assert result.mean.tolist() == [1.5, 5, 5, 7]
    assert result.std.tolist() == pytest.approx([0.5**0.5, 50**0.5, 0, 0])
    assert result.size.tolist() == [2, 2, 2, 1]
    assert result.keeps([3, 1, 0, 2]).tolist() == [False, True, True, False]
    assert choose(NARROW, WIDE).reasons == ("beyond_keep_ratio", "kept")


@pytest.mark.parametrize(
    ("groups", "ratio", "kept"),
    [(8, 0.25, 2), (3, 0.25, 1), (1, 0.75, 1), (5, 0.5, 2), (100, 0.29, 29), (7, 1.0, 7)],
)
def test_the_number_kept_is_the_floor_of_the_share_but_at_least_one(groups, ratio, kept):
    result = choose(*[[0.0, 1.0 + g] for g in range(groups)], keep_ratio=ratio)
    assert result.kept_groups == tuple(range(groups - kept, groups))


def test_a_group_without_spread_never_fills_the_quota_unless_asked():
    assert choose(EQUAL, WIDE, EQUAL, EQUAL, keep_ratio=1.0).kept_groups == (1,)
    assert choose(EQUAL, WIDE, EQUAL, EQUAL, keep_ratio=0.5, keep_zero_spread=True).kept_groups == (0, 1)
    assert choose(EQUAL, WIDE, [7.0], keep_ratio=1.0, keep_zero_spread=True).kept_groups == (0, 1, 2)


def test_a_spread_equal_to_the_least_one_is_too_low():
    least = float(choose(NARROW).std[0])
    assert choose(NARROW, WIDE, keep_ratio=1.0, min_std=least).reasons == ("low_spread", "kept")


def test_a_random_filter_keeps_as_many_groups_by_lot_whatever_their_spread():
    lots = {0: 0.7, 1: 0.2, 2: 0.9, 3: 0.1}
    options = {"mode": "random", "lot": lots.get}
    assert choose(EQUAL, WIDE, NARROW, EQUAL, keep_zero_spread=True, **options).kept_groups == (1, 3)
    assert choose(EQUAL, WIDE, NARROW, EQUAL, **options).kept_groups == (1, 2), "none without spread"
    assert choose(EQUAL, WIDE, NARROW, EQUAL, keep_ratio=0.25, **options).kept_groups == (1,)
    with pytest.raises(ValueError, match="mode 'random' needs lot"):
        choose(WIDE, NARROW, mode="random")


def test_all_groups_filtered_is_a_normal_outcome():
    result = choose(EQUAL, EQUAL, [1.0])
    assert result.kept_groups == ()
    assert not result.keeps([0, 1, 2]).any()
    nothing = select_groups([], [], keep_ratio=0.5)
    assert nothing.kept_groups == ()
    assert nothing.reasons == ()


def test_equal_spreads_are_decided_by_group_id():
    assert choose(WIDE, NARROW, OTHER_WIDE, WIDE).kept_groups == (0, 2)
    assert choose(NARROW, NARROW, WIDE, WIDE, mode="low_std").kept_groups == (0, 1)


def test_spreads_that_differ_by_rounding_only_are_a_tie_whatever_the_order_of_members():
    for first in ([0.0, -3.0, -1.0], [0.0, -1.0, -3.0], [-1.0, -3.0, 0.0]):
        assert choose(first, [0.0, -1.0, 2.0], keep_ratio=0.5).kept_groups == (0,)


def test_rounding_of_the_sum_over_turns_is_no_spread():
    third = [0.1 + 0.2 + 0.7, 0.7 + 0.2 + 0.1, 1.0]
    assert len(set(third)) > 1
    assert choose(third).reasons == ("zero_spread",)


def test_the_threshold_mode_keeps_every_group_above_it():
    result = choose(WIDE, NARROW, EQUAL, mode="threshold", keep_ratio=1.0, min_std=1.0)
    assert result.reasons == ("kept", "low_spread", "zero_spread")
    assert choose(WIDE, NARROW, EQUAL, mode="threshold", keep_ratio=1.0).kept_groups == (0, 1)


def test_min_std_applies_to_the_ranking_modes_too():
    assert choose(WIDE, NARROW, keep_ratio=1.0, min_std=1.0).reasons == ("kept", "low_spread")


def test_top_p_keeps_the_shortest_head_that_holds_the_share_of_all_spread():
    groups = [[0.0, 6.0], [0.0, 3.0], [0.0, 1.0], EQUAL]
    for ratio, kept in [
        (0.1, (0,)),
        (0.6, (0,)),
        (0.61, (0, 1)),
        (0.9, (0, 1)),
        (0.95, (0, 1, 2)),
        (1.0, (0, 1, 2)),
    ]:
        assert choose(*groups, mode="top_p", keep_ratio=ratio).kept_groups == kept, ratio
    assert choose(EQUAL, mode="top_p").kept_groups == ()


@given(
    groups=st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=5), min_size=1, max_size=10),
    ratio=st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]),
    seed=st.integers(0, 99),
)
def test_the_choice_equals_a_plain_sort_and_does_not_depend_on_the_order_of_trajectories(groups, ratio, seed):
    groups = [[float(v) for v in group] for group in groups]
    result = choose(*groups, keep_ratio=ratio)
    spread = [round(loops.std(group), 9) for group in groups]
    informative = sorted((g for g in range(len(groups)) if spread[g] > 0), key=lambda g: (-spread[g], g))
    assert result.kept_groups == tuple(sorted(informative[: max(1, int(ratio * len(groups) + 1e-9))]))

    returns = np.array([value for group in groups for value in group])
    labels = np.array([i for i, group in enumerate(groups) for _ in group])
    order = np.random.default_rng(seed).permutation(len(returns))
    shuffled = select_groups(returns[order], labels[order], keep_ratio=ratio)
    assert shuffled.kept_groups == result.kept_groups
    assert (shuffled.keeps(labels) == result.keeps(labels)).all()


def test_normalised_returns_would_hide_the_spread_so_the_filter_takes_raw_ones():
    returns, labels = torch.tensor([0.0, 10.0, 1.0, 2.0]), torch.tensor([0, 0, 1, 1])
    normalised = normalize_returns(returns, labels, "mean_std")
    raw = select_groups(returns.numpy(), labels.numpy(), keep_ratio=0.5)
    blind = select_groups(normalised.numpy(), labels.numpy(), keep_ratio=0.5)
    assert raw.kept_groups == (0,)
    assert np.ptp(blind.std) < 1e-5 < np.ptp(raw.std)


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.01, float("nan")])
def test_a_keep_ratio_outside_its_range_is_refused(ratio):
    with pytest.raises(ValueError, match=r"keep_ratio must be in \(0, 1\], got"):
        choose(WIDE, keep_ratio=ratio)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "max_mean"}, "known: std, low_std, random, top_p, threshold"),
        ({"min_std": -1.0}, "min_std must not be negative"),
        ({"mode": "threshold", "keep_ratio": 0.5}, "keep_ratio must be 1"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        choose(WIDE, **options)


def test_bad_returns_are_refused_with_the_trajectory_they_belong_to():
    with pytest.raises(ValueError, match=r"return of trajectory 1 \(group 7\) is nan"):
        select_groups([0.0, float("nan")], [7, 7], keep_ratio=0.5)
    with pytest.raises(ValueError, match="vectors of one length"):
        select_groups([0.0], [1, 2], keep_ratio=0.5)


def test_normalisation_methods_by_hand():
    returns, groups = torch.tensor([0.0, 0.0, 0.0, 0.0, 5.0, 7.0]), torch.tensor([0, 0, 0, 0, 0, 1])
    std = 5**0.5
    assert normalize_returns(returns, groups, "mean").tolist() == [-1, -1, -1, -1, 4, 7]
    assert normalize_returns(returns, groups, "mean_std").tolist() == pytest.approx(
        [-1 / std] * 4 + [4 / std, 7], rel=1e-5
    )
    many = torch.tensor([0.0] * 15 + [10.0])
    assert float(normalize_returns(many, torch.zeros(16).long(), "asym_clip").max()) == 3.0
    assert normalize_returns(-many, torch.zeros(16).long(), "asym_clip").min() == -1.0
    with pytest.raises(ValueError, match="known: identity, mean, mean_std, asym_clip"):
        normalize_returns(returns, groups, "rank")

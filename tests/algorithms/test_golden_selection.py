"""Every stored case of the peer's group filter and reward normalisation: equal, or a listed difference."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import loop_references as loops
import numpy as np
import pytest
import torch
from recordings import recording

from starpo.algorithms.filters import select_groups
from starpo.algorithms.reward_norm import normalize_returns

Case = dict[str, Any]
FILTERING = recording("filtering.json")
NORMALISATION = recording("reward_norm.json")
SETS = {stored["name"]: stored for stored in NORMALISATION["sets"]}

DIFFERENCES = {
    "max_mean is not a filter mode": (
        "It ranks by reward level, not by spread; the peer's current version raises ValueError for it as "
        "we do."
    ),
    "at least one group is kept": "The peer's floor keeps none of 3 groups at 0.25, and logs NaN.",
    "single members have no spread": "The peer's std of one member is NaN, and its choice arbitrary.",
    "equal groups fill no quota": (
        "The peer keeps groups without spread to fill its quota; ours only if asked to."
    ),
    "ties go to the lower group number": "The peer's choice among equal spreads is that of its sorting routine.",
    "group means are exact": (
        "In the set tiny_variance the peer's differences from the mean are float32 rounding."
    ),
    "singletons are independent": (
        "The peer keeps every singleton's return if all groups are singletons, and zeroes them all if "
        "there is one pair."
    ),
}


def flat(matrix: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    returns = np.array(matrix, dtype=np.float64)
    return returns.ravel(), np.repeat(np.arange(len(returns)), returns.shape[1])


def filter_difference(case: Case) -> str | None:
    if case["type"] == "max_mean":
        return "max_mean is not a filter mode"
    if case["group_size"] == 1:
        return "single members have no spread"
    if math.floor(case["ratio"] * case["env_groups"]) == 0:
        return "at least one group is kept"
    spread = [loops.std(row) for row in FILTERING["matrices"][case["matrix"]]]
    if any(spread[group] < 1e-9 for group in case["kept_groups"]):
        return "equal groups fill no quota"
    return "ties go to the lower group number" if case.get("tie_at_threshold", False) else None


def check_filter(case: Case) -> None:
    matrix = FILTERING["matrices"][case["matrix"]]
    returns, groups = flat(matrix)
    listed = filter_difference(case)
    if listed == "max_mean is not a filter mode":
        with pytest.raises(ValueError, match="known: std, low_std, random, top_p, threshold"):
            select_groups(returns, groups, keep_ratio=case["ratio"], mode=case["type"])
        return
    mode = {"std": "std", "std_rev": "low_std"}[case["type"]]
    ours = select_groups(returns, groups, keep_ratio=case["ratio"], mode=mode)
    spread = [loops.std(row) for row in matrix]
    np.testing.assert_allclose(ours.std, spread, atol=1e-12)
    np.testing.assert_allclose(ours.mean, [loops.mean(row) for row in matrix])

    # The rule again, in one line of Python.
    sign = 1 if mode == "low_std" else -1
    ranked = sorted(range(len(matrix)), key=lambda g: (sign * round(spread[g], 9), g))
    informative = [g for g in ranked if spread[g] > 1e-9]
    right = sorted(informative[: max(1, math.floor(case["ratio"] * len(matrix)))])
    assert list(ours.kept_groups) == right

    if listed is None:
        assert list(ours.kept_groups) == case["kept_groups"]
    elif listed in ("ties go to the lower group number", "equal groups fill no quota"):
        filled = select_groups(returns, groups, keep_ratio=case["ratio"], mode=mode, keep_zero_spread=True)
        theirs = sorted(spread[g] for g in case["kept_groups"])
        assert sorted(spread[g] for g in filled.kept_groups) == pytest.approx(theirs, abs=1e-9)
    elif listed == "at least one group is kept":
        assert case["kept_groups"] == []
    if case["kept_groups"] and listed in (None, "ties go to the lower group number"):
        metrics = case["metrics"]
        assert ours.std.mean() == pytest.approx(metrics["rollout/in_group_std"], rel=1e-4, abs=1e-6)
        assert ours.mean.mean() == pytest.approx(metrics["rollout/in_group_mean"], rel=1e-5, abs=1e-6)


def named(case: Case, *keys: str) -> str:
    """A case as its failure names it."""
    return "-".join(str(case[key]) for key in keys)


@pytest.mark.parametrize(
    "case", FILTERING["cases"], ids=lambda case: named(case, "matrix", "ratio", "type", "peer_version")
)
def test_the_peers_group_choices_are_reproduced_or_are_listed_differences(case: Case) -> None:
    check_filter(case)


def test_every_listed_difference_of_the_filter_has_a_case() -> None:
    assert {filter_difference(case) for case in FILTERING["cases"]} == {None, *list(DIFFERENCES)[:5]}


def norm_groups(case: Case) -> torch.Tensor:
    stored = SETS[case["set"]]
    labels = {
        "state": stored["group_id"],
        "batch": [0] * len(stored["scores"]),
        "inductive": stored["tag"],
    }[case["grouping"]]
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1])


def norm_loop(returns: list[float], groups: list[int], method: str) -> list[float]:
    if method == "identity":
        return returns
    relative = loops.grpo_loop(returns, groups, divide_by_std=method != "mean")
    if method != "mean":
        spread = [loops.std([returns[j] for j in loops.members(groups, i)]) for i in range(len(returns))]
        size = [len(loops.members(groups, i)) for i in range(len(returns))]
        relative = [0.0 if n > 1 and s <= 1e-6 else v for v, s, n in zip(relative, spread, size, strict=True)]
    if method != "asym_clip":
        return relative
    return [
        value if len(loops.members(groups, i)) == 1 else min(max(value, -1.0), 3.0)
        for i, value in enumerate(relative)
    ]


def norm_difference(case: Case) -> str | None:
    size = torch.bincount(norm_groups(case))
    if case["method"] != "identity" and bool((size == 1).any()) and bool((size > 1).any()):
        return "singletons are independent"
    return "group means are exact" if (case["set"], case["method"]) == ("tiny_variance", "mean") else None


@pytest.mark.parametrize(
    "case", NORMALISATION["cases"], ids=lambda case: named(case, "set", "grouping", "method")
)
def test_the_peers_normalised_returns_are_reproduced_or_are_listed_differences(case: Case) -> None:
    stored, groups, method = SETS[case["set"]], norm_groups(case), case["method"]
    raw = torch.tensor(stored["scores"]) + torch.tensor(stored["penalty"])
    before = raw.clone()
    ours = normalize_returns(raw, groups, method)
    assert torch.equal(raw, before)
    right = torch.tensor(norm_loop(raw.double().tolist(), groups.tolist(), method))
    theirs = torch.tensor(case["normalized"])
    scale = float(theirs.abs().max()) or 1.0
    assert float((ours - right).abs().max()) <= 1e-6 * (float(right.abs().max()) or 1.0)
    listed = norm_difference(case)
    if listed == "singletons are independent":
        several = torch.bincount(groups)[groups] > 1
        assert float((ours - theirs)[several].abs().max()) <= 1e-6 * scale
    elif listed is None:
        assert float((ours - theirs).abs().max()) <= 1e-6 * scale


def test_the_listed_difference_of_singletons_has_a_case() -> None:
    assert "singletons are independent" in map(norm_difference, NORMALISATION["cases"])


def test_the_page_of_algorithms_counts_the_cases_and_names_the_differences() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/algorithms.md").read_text()
    tallies = {
        "rollout filter": Counter(map(filter_difference, FILTERING["cases"])),
        "reward normalisation": Counter(map(norm_difference, NORMALISATION["cases"])),
    }
    for function, tally in tallies.items():
        assert f"| {function} | {tally.total()} | {tally[None]} | {tally.total() - tally[None]} |" in page
    for name in DIFFERENCES:
        assert f"| {name} |" in page

"""The rules that decide a study's claims, on made-up cells."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from made_up import SUITE, cell, outcomes

from starpo.errors import UserError
from starpo.evaluation.intervals import mean_interval, paired_rate_difference
from starpo.studies.claims import (
    Collapses,
    Delays,
    Higher,
    Leads,
    Learns,
    Verdict,
    decide,
    difference_intervals,
    read_claims,
)

STUDIES = Path(__file__).resolve().parents[2] / "studies"
MONITOR = yaml.safe_load((STUDIES.parent / "conf/base/parameters_monitor.yml").read_text())["monitor"]
INDICATORS = [name for name in MONITOR["indicators"] if name != "success"]
COLLAPSES = Collapses(kind="collapses", text="it collapses", task="lake", algorithm="starpo_ppo", seeds=2)
DELAYS = Delays(
    kind="delays", text="later", task="lake", earlier="starpo_ppo", later="starpo_s", margin=5, seeds=2
)
LEADS = Leads(kind="leads", text="before", indicator="entropy", share=0.667, cells=3)


def higher(margin: float = 0.0) -> Higher:
    return Higher(
        kind="higher",
        text="higher",
        task="lake",
        better="starpo_s",
        worse="starpo_ppo",
        suite=SUITE,
        margin=margin,
    )


def solved(rate: float, seed: int, prompts: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).random(prompts) < rate


@pytest.mark.parametrize(
    ("alarms", "verdict"),
    [
        ((30, 40, None), "confirmed"),
        ((30, 40, 50), "confirmed"),
        ((30, None, None), "undecided"),
        ((None, None, None), "refuted"),
        ((0, 0, None), "confirmed"),  # iteration 0 is an alarm, not the absence of one
    ],
)
def test_a_collapse_is_counted_over_seeds(alarms: tuple[int | None, ...], verdict: Verdict) -> None:
    cells = [cell(seed=seed, alarm=alarm) for seed, alarm in enumerate(alarms)]
    assert decide(COLLAPSES, cells).verdict == verdict


@pytest.mark.parametrize(
    ("earlier", "later", "verdict"),
    [
        ((30, 30, 30), (None, 40, 35), "confirmed"),
        ((30, 30, None), (None, 36, 10), "confirmed"),  # a seed without a collapse to delay does not count
        ((30, None, None), (None, None, None), "undecided"),
        ((30, 30, 30), (None, 34, 40), "undecided"),  # later, but by less than the margin
        ((30, 30, 30), (30, 20, None), "refuted"),
        ((58, 58, 58), (None, None, None), "undecided"),  # the runs end before the margin is over
    ],
)
def test_a_delay_needs_a_collapse_to_delay_and_the_whole_margin(
    earlier: tuple[int | None, ...], later: tuple[int | None, ...], verdict: Verdict
) -> None:
    cells = [cell(seed=seed, alarm=alarm) for seed, alarm in enumerate(earlier)]
    cells += [cell("starpo_s", seed, alarm=alarm) for seed, alarm in enumerate(later)]
    assert decide(DELAYS, cells).verdict == verdict


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((3, 5, 1), "confirmed"),
        ((3, 5, None), "confirmed"),
        ((3, None, 0), "refuted"),  # together with success is not before it
        ((3, None, -2, 4), "undecided"),
        ((3, 5), "undecided"),
    ],
)
def test_an_indicator_leads_where_it_warned_before_success_fell(
    leads: tuple[int | None, ...], verdict: Verdict
) -> None:
    cells = [cell(seed=seed, leads={"entropy": lead}) for seed, lead in enumerate(leads)]
    cells.append(cell("starpo_s", 9))  # success never fell there
    assert decide(LEADS, cells).verdict == verdict


def test_higher_is_confirmed_or_refuted_by_a_large_difference_in_all_seeds() -> None:
    cells = [cell("starpo_ppo", seed, after=solved(0.3, seed)) for seed in range(3)]
    cells += [cell("starpo_s", seed, after=solved(0.8, 10 + seed)) for seed in range(3)]
    assert decide(higher(), cells).verdict == "confirmed"
    assert decide(higher(margin=0.2), cells).verdict == "confirmed"
    swapped = higher().model_copy(update={"better": "starpo_ppo", "worse": "starpo_s"})
    assert decide(swapped, cells).verdict == "refuted"


def test_higher_is_undecided_where_the_seeds_disagree_however_many_prompts_there_are() -> None:
    cells = [cell("starpo_ppo", seed, after=solved(0.5, seed, 4000)) for seed in range(3)]
    cells += [
        cell("starpo_s", seed, after=solved(rate, 9, 4000)) for seed, rate in enumerate((0.9, 0.9, 0.4))
    ]
    finding = decide(higher(), cells)
    before, after = (
        [o.after[SUITE] for c, o in cells if c.algorithm == a] for a in ("starpo_ppo", "starpo_s")
    )
    over_seeds, over_prompts = difference_intervals(before, after)
    assert over_prompts.low > 0 > over_seeds.low, "this case must tell the two intervals apart"
    assert finding.verdict == "undecided"


def test_one_seed_decides_nothing_about_other_seeds() -> None:
    cells = [cell("starpo_ppo", after=np.zeros(400)), cell("starpo_s", after=np.ones(400))]
    finding = decide(higher(), cells)
    assert finding.verdict == "undecided" and "one seed" in finding.evidence


def test_an_equal_success_refutes_only_a_claim_with_a_margin() -> None:
    cells = [cell("starpo_ppo", seed, after=solved(0.5, seed, 4000)) for seed in range(3)]
    cells += [cell("starpo_s", seed, after=solved(0.5, seed, 4000)) for seed in range(3)]
    assert decide(higher(), cells).verdict == "undecided"
    assert decide(higher(margin=0.05), cells).verdict == "refuted"


def test_learning_compares_the_first_policy_with_the_last() -> None:
    claim = Learns(
        kind="learns", text="it learns", task="lake", algorithm="starpo_s", suite=SUITE, margin=0.05
    )
    rates = ((0.30, 0.60), (0.30, 0.58), (0.30, 0.62))
    cells = [
        cell("starpo_s", seed, before=solved(first, 5), after=solved(last, seed))
        for seed, (first, last) in enumerate(rates)
    ]
    assert decide(claim, cells).verdict == "confirmed"
    back = [(c, o.model_copy(update={"before": o.after, "after": o.before})) for c, o in cells]
    assert decide(claim, back).verdict == "refuted"


@given(st.integers(1, 4), st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_the_two_intervals_are_those_of_the_same_mean_difference(seeds: int, prompts: int, draw: int) -> None:
    rng = np.random.default_rng(draw)
    before, after = (rng.random((seeds, prompts)) < 0.5 for _ in range(2))
    over_seeds, over_prompts = difference_intervals(
        [outcomes(row) for row in before], [outcomes(row) for row in after]
    )
    differences = after.astype(float) - before.astype(float)
    assert over_seeds.estimate == pytest.approx(differences.mean())
    assert over_prompts.estimate == pytest.approx(differences.mean())
    expected = mean_interval([row.mean() for row in differences], range(seeds))
    assert over_seeds.low == pytest.approx(expected.low)
    # One row per sample, prompt by prompt: the same clusters in another order.
    by_prompt = paired_rate_difference(
        before.T.ravel().astype(float), after.T.ravel().astype(float), np.repeat(np.arange(prompts), seeds)
    )
    assert over_prompts.high == pytest.approx(by_prompt.high)


def test_cells_on_other_prompts_are_refused() -> None:
    cells = [cell("starpo_ppo"), cell("starpo_s", start="other")]
    with pytest.raises(UserError, match="different prompts"):
        decide(higher(), cells)


def test_a_claim_about_what_the_study_has_not_is_refused() -> None:
    with pytest.raises(UserError, match="lake starpo_s"):
        decide(COLLAPSES, [cell("starpo_s")])
    with pytest.raises(UserError, match="same"):
        decide(DELAYS, [cell(seed=0), cell(seed=1), cell("starpo_s", 0)])
    with pytest.raises(UserError, match="entropy"):
        decide(LEADS, [cell(seed=seed, leads={"return_std": 2}) for seed in range(3)])
    with pytest.raises(UserError, match="test-t0_5"):
        decide(higher().model_copy(update={"suite": "test-t0_5"}), [cell(), cell("starpo_s")])


def test_a_damaged_file_of_claims_is_refused_with_the_key(tmp_path: Path) -> None:
    path = tmp_path / "claims.yml"
    path.write_text("written: '2026-01-01'\nclaims: {a: {kind: collapses, text: x, task: t, seeds: 0}}")
    with pytest.raises(UserError, match=r"claims\.a"):
        read_claims(path)


CLAIM = {"kind": "collapses", "text": "x", "task": "t", "algorithm": "a", "seeds": 1}
HIGHER = {
    "kind": "higher",
    "text": "x",
    "task": "t",
    "better": "a",
    "worse": "b",
    "suite": "test-t1_0",
    "margin": 0,
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ["holds nothing", "expected the keys written and claims"]),
        ("# later\n", ["holds nothing"]),
        ("- a\n", ["holds ['a']"]),
        ("5", ["holds 5"]),
        ("written: [", ["cannot be read"]),
        (b"\xff\xfe\xfa", ["cannot be read"]),
        ({"written": 5}, ["written = 5: a date is a text in quotes", "claims: Field required"]),
        ({"written": datetime.date(2026, 11, 29)}, ["written = datetime.date", "in quotes"]),
        ({"claims": {}}, ["claims = {}: Dictionary should have at least 1 item"]),
        ({"claims": None}, ["claims = None: Input should be a valid dictionary"]),
        ({"claims": {"a": 3}}, ["claims.a = 3: "]),
        ({"claims": {"a": {"kind": "rises"}}}, ["claims.a = {'kind': 'rises'}: ", "'collapses', 'delays'"]),
        ({"claims": {"a": {"text": "x"}}}, ["claims.a", "kind"]),
        ({"claims": {"a": CLAIM | {"seeds": 0}}}, ["claims.a.seeds = 0: Input should be greater than 0"]),
        (
            {"claims": {"a": CLAIM | {"seeds": True}}},
            ["claims.a.seeds = True: Input should be a valid integer"],
        ),
        ({"claims": {"a": HIGHER | {"margin": math.nan}}}, ["claims.a.margin = nan: Input should be"]),
        ({"claims": {"a": CLAIM | {"sedes": 1}}}, ["claims.a.sedes: Extra inputs are not permitted"]),
        ({"claims": {"a": CLAIM | {"written": 5}}}, ["claims.a.written = 5: a date is a text in quotes"]),
        ({"more": 1}, ["more: Extra inputs are not permitted"]),
    ],
)
def test_every_damage_names_file_key_value_and_remedy(
    tmp_path: Path, content: str | bytes | dict[str, Any], expected: list[str]
) -> None:
    path = tmp_path / "claims.yml"
    if isinstance(content, dict):
        whole = {"written": "2026-11-29", "claims": {"a": CLAIM}}
        content = yaml.safe_dump(content if content == {"written": 5} else whole | content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        read_claims(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert ": : " not in message
    assert message.endswith("correct the file: docs/study.md has its form and the kinds of claims")
    for part in expected:
        assert part in message


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/claims.yml")))
def test_the_claims_of_every_study_are_about_its_own_grid(study: str) -> None:
    grid = yaml.safe_load((STUDIES / study / "dvc.yaml").read_text())["vars"][0]
    cells = [
        cell(algorithm, seed, task=task, alarm=30, leads=dict.fromkeys(INDICATORS, 1))
        for task in grid["tasks"]
        for algorithm in grid["algorithms"]
        for seed in grid["seeds"]
    ]
    for name, claim in read_claims(STUDIES / study / "claims.yml").claims.items():
        assert decide(claim, cells).evidence, name

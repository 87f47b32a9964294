"""The bandit's payments, its pairs of names and their splits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from starpo.environments.bandit import FAMILIES, HIGH_RISK_NAMES, LOW_RISK_NAMES, PAIRS, Bandit
from starpo.environments.splits import SHARES, Split


def test_payments_equal_the_recorded_ones_under_the_same_luck(golden):
    recorded = golden("bandit.json")
    env = Bandit(low_reward=recorded["config"]["low_arm_reward"])
    for case in recorded["per_seed"]:
        for arm in ("high", "low"):
            env.reset(seed=case["seed"])
            low_name = next(name for name in env.action_names if name != env.best_arm)
            # the peer draws arm order and payment from one stream
            env.dynamics = np.random.Generator(np.random.PCG64(case["seed"]))
            env.dynamics.random()
            name = env.best_arm if arm == "high" else low_name
            observation, reward, terminated, truncated, info = env.step(name)
            assert reward == case[f"{arm}_reward"]
            assert observation == f"{name}: {case[f'{arm}_obs'].split(': ')[1]}"
            assert info["success"] == case[f"{arm}_success"]
            assert (terminated, truncated) == (True, False)


def test_ten_thousand_recorded_pulls_per_arm_pay_and_are_listed_as_often(golden):
    recorded = golden("bandit.json")["measured"][0]
    paid, first = Counter(), Counter()
    env = Bandit()
    for seed in range(recorded["pulls_per_arm"]):
        env.reset(seed=0)
        env.dynamics = np.random.Generator(np.random.PCG64(seed))
        first["Phoenix" if env.dynamics.random() < 0.5 else "Dragon"] += 1
        paid[str(env.step(env.best_arm)[1])] += 1
    assert paid == recorded["reward_counts"]["Dragon"]
    assert first == recorded["first_listed_counts"]
    assert recorded["reward_counts"]["Phoenix"] == {str(env.low_reward): recorded["pulls_per_arm"]}


def test_the_risky_arm_pays_with_its_probability_and_the_sure_arm_always():
    env = Bandit()
    payments: dict[bool, Counter[float]] = {True: Counter(), False: Counter()}
    for dynamics_seed in range(4000):
        env.reset(seed=dynamics_seed % 7, options={"dynamics_seed": dynamics_seed})
        choose_best = dynamics_seed % 2 == 0
        arm = next(name for name in env.action_names if (name == env.best_arm) == choose_best)
        _, reward, *_, info = env.step(arm)
        payments[choose_best][reward] += 1
        assert info["success"] == choose_best
    assert set(payments[False]) == {0.1}
    assert payments[True][1.0] / 2000 == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("names", FAMILIES)
def test_pairs_are_split_so_that_held_out_pairs_are_new_but_their_names_are_not(names):
    counts = Counter(PAIRS[names].values())
    assert {split: counts[split] / len(PAIRS[names]) for split in Split} == SHARES
    trained = [pair for pair, split in PAIRS[names].items() if split is Split.TRAIN]
    low_risk, high_risk = FAMILIES[names]
    assert {low for low, _ in trained} == set(low_risk)
    assert {high for _, high in trained} == set(high_risk)
    assert not set(low_risk) & set(high_risk)


@pytest.mark.parametrize("names", FAMILIES)
def test_every_split_holds_every_name_equally_often(names):
    for split in Split:
        counts = Counter(name for pair, of in PAIRS[names].items() if of is split for name in pair)
        assert len(counts) == 40
        assert len(set(counts.values())) == 1


def test_other_names_are_other_in_every_letter_case():
    things, occupations = (
        {name.casefold() for family in pair for name in family} for pair in FAMILIES.values()
    )
    assert len(things) == len(occupations) == 40
    assert not things & occupations


def test_other_names_pay_by_the_same_law():
    env = Bandit(names="occupations")
    for seed in range(50):
        env.reset(seed=seed)
        low, high = FAMILIES["occupations"]
        assert env.best_arm in high
        (sure,) = set(env.action_names) - {env.best_arm}
        assert sure in low
        assert env.step(sure)[1] == 0.1


def test_both_orders_of_presentation_occur():
    env = Bandit()
    orders = Counter()
    for seed in range(400):
        env.reset(seed=seed)
        orders[env.action_names[0] == env.best_arm] += 1
    assert orders[True] / 400 == pytest.approx(0.5, abs=0.12)


def test_reversed_meaning_keeps_the_prompt_and_swaps_the_arms():
    plain, reverse = Bandit(), Bandit(reversed_meaning=True)
    for seed in range(20):
        assert plain.reset(seed=seed)[0] == reverse.reset(seed=seed)[0]
        assert plain.best_arm in HIGH_RISK_NAMES
        assert reverse.best_arm in LOW_RISK_NAMES
        assert {plain.best_arm, reverse.best_arm} == set(plain.action_names)
    assert plain.rules == reverse.rules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low_reward": 0.25}, "low_reward is 0.25, allowed: from 0 to below high_probability"),
        ({"high_probability": 1.0}, "high_probability is 1.0"),
        ({"names": "animals"}, "names is 'animals', allowed: things, occupations"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Bandit(**arguments)

"""Instances and luck depend on their seeds alone, and splits never overlap."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.base import TextEnvironment
from starpo.environments.registry import make
from starpo.environments.splits import SHARES, Instance, Split, draw_instance, split_of, split_of_environment
from starpo.seeds import Purpose, SeedKey

NAMES = ("bandit", "bandit_occupations", "frozen_lake", "sokoban", "sokoban_large", "sokoban_paper")
KEY = SeedKey(run_seed=3, purpose=Purpose.INSTANCE, stream="train", iteration=2, group=1)
seeds = st.integers(0, 2**63 - 1)

PLAY = """
from starpo.environments.registry import make
from starpo.environments.splits import Split, draw_instance
from starpo.seeds import Purpose, SeedKey
for name in {names}:
    print("==", name)
    env = make(name)
    for split in Split:
        print(draw_instance(env, split=split, key=SeedKey(3, Purpose.INSTANCE, "train", group=7)))
    for seed in range(5):
        print(repr(env.reset(seed=seed, options={{"dynamics_seed": seed + 100}})))
        for turn in range(8):
            result = env.step(env.action_names[turn % len(env.action_names)])
            print(result)
            if result[2] or result[3]:
                break
"""


class OneInstance(TextEnvironment):
    """An environment whose only observation lies in one split."""

    rules, action_names, return_range = "", ("Go",), (0.0, 0.0)

    def _begin(self, instance):
        return "the same", {"success": False}

    def _act(self, action):
        return "", 0.0, True, False, {"success": False, "effective": True}


def test_other_processes_see_the_same_episodes_whatever_the_hash_seed_and_the_order():
    outputs = []
    for hash_seed, names in (("0", NAMES), ("12345", NAMES[::-1])):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", PLAY.format(names=names)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(sorted(done.stdout.split("== ")))
    assert outputs[0] == outputs[1]
    assert [block.split()[0] for block in outputs[0] if block] == sorted(NAMES)
    assert all(block.count("\n") > 8 for block in outputs[0] if block)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, dynamics=st.tuples(seeds, seeds))
@examples(0.25)
def test_group_members_share_the_first_observation_whatever_their_luck(name, seed, dynamics):
    env = make(name)
    first, second = (env.reset(seed=seed, options={"dynamics_seed": each})[0] for each in dynamics)
    assert first == second == make(name).reset(seed=seed)[0]


@pytest.mark.parametrize(("name", "turns"), [("bandit", 1), ("frozen_lake", 4)])
@given(seed=seeds)
@examples(0.1)
def test_group_members_differ_in_luck(name, turns, seed):
    env = make(name)
    outcomes = set()
    for dynamics_seed in range(40):
        env.reset(seed=seed, options={"dynamics_seed": dynamics_seed})
        # The arm whose payment is random; on a lake one action, so that only slips can tell members apart.
        action = getattr(env, "best_arm", env.action_names[0])
        history = []
        for _ in range(turns):
            observation, reward, terminated, *_ = env.step(action)
            history.append((observation, reward))
            if terminated:
                break
        outcomes.add(tuple(history))
    assert len(outcomes) > 1


def test_the_hash_is_stable_and_follows_the_shares():
    # Written down once: a change here would move published test instances into training.
    first = [split_of(f"map {number}").value for number in range(9)]
    assert first == ["train"] * 7 + ["test", "validation"]
    counts = Counter(split_of(f"map {number}") for number in range(20_000))
    for split, share in SHARES.items():
        assert counts[split] / 20_000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("name", NAMES)
@given(run_seed=st.integers(0, 2**32), group=st.integers(0, 1000))
@examples(0.15)
def test_drawn_instances_belong_to_their_split_alone(name, run_seed, group):
    env = make(name)
    drawn = {}
    for split in Split:
        key = replace(KEY, run_seed=run_seed, group=group)
        instance = draw_instance(env, split=split, key=key)
        assert instance == draw_instance(make(name), split=split, key=key)
        observation, _ = env.reset(seed=instance.seed)
        assert observation == instance.observation
        assert split_of_environment(env, observation) is split
        drawn[split] = instance.observation
    assert len(set(drawn.values())) == len(Split)


@pytest.mark.parametrize("name", NAMES)
def test_splits_do_not_overlap_in_many_draws(name):
    env = make(name)
    observations = {
        split: {
            draw_instance(env, split=split, key=replace(KEY, group=group, stream=split.value)).observation
            for group in range(100)
        }
        for split in Split
    }
    assert not observations[Split.TRAIN] & observations[Split.VALIDATION]
    assert not observations[Split.TRAIN] & observations[Split.TEST]
    assert not observations[Split.VALIDATION] & observations[Split.TEST]


#: By environment: arguments that change what is shown of an instance, its luck or its rewards, never the instance.
GUISES = {
    "bandit": [{"reversed_meaning": True}, {"low_reward": 0.15}],
    "frozen_lake": [
        {"coordinates": True},
        {"surroundings": True},
        {"coordinates": True, "surroundings": True},
        {"slippery": False},
        {"success_probability": 0.8, "coordinates": True},
    ],
    "sokoban": [{"coordinates": True}, {"symbols": {"wall": "W"}}, {"max_steps": 7}],
    "webshop_easy": [{"hints": True}, {"show_attributes": True}, {"list_actions": True}, {"page_size": 2}],
}


@pytest.mark.parametrize("name", GUISES)
def test_an_instance_belongs_to_one_split_in_every_guise_and_to_the_end_of_its_episode(name):
    plain = make(name)
    others = [make(name, **guise) for guise in GUISES[name]]
    draw = np.random.default_rng(0)
    found = set()
    for seed in range(60):
        observation, _ = plain.reset(seed=seed)
        split = split_of_environment(plain, observation)
        found.add(split)
        for other in others:
            assert split_of_environment(other, other.reset(seed=seed)[0]) is split
            for _ in range(3):
                observation, _, terminated, truncated, _ = other.step(other.random_action(draw))
                if terminated or truncated:
                    break
            assert split_of_environment(other, observation) is split
    assert found == set(Split)


def test_all_members_and_turns_of_a_group_draw_one_instance():
    env = make("frozen_lake")
    instance = draw_instance(env, split=Split.TRAIN, key=KEY)
    same = replace(KEY, member=5, turn=2, attempt=9, purpose=Purpose.SAMPLING)
    assert draw_instance(env, split=Split.TRAIN, key=same) == instance
    other = draw_instance(env, split=Split.TRAIN, key=replace(KEY, round=1))
    assert other != instance
    assert isinstance(other, Instance)


def test_an_environment_without_instances_of_a_split_says_so():
    missing = next(split for split in Split if split is not split_of("the same"))
    with pytest.raises(RuntimeError, match=f"OneInstance: no instance of split '{missing}' in 1000 seeds"):
        draw_instance(OneInstance(), split=missing, key=KEY)

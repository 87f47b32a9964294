"""The contract, for every registered environment, and the messages of the registry."""

from __future__ import annotations

import pytest

from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import RETURN_TOLERANCE, ContractError, check_environment
from starpo.environments.registry import canonical, make, register, registered_names

BUILT_IN = (
    "bandit",
    "bandit_occupations",
    "bandit_paper",
    "bandit_ragen",
    "bandit_reversed",
    "frozen_lake",
    "frozen_lake_8x8",
    "frozen_lake_no_slip",
    "frozen_lake_paper",
    "frozen_lake_ragen_v2",
    "frozen_lake_ragen_v2_no_slip",
    "sokoban",
    "sokoban_different_vocab",
    "sokoban_different_vocab_paper",
    "sokoban_large",
    "sokoban_large_paper",
    "sokoban_paper",
    "sokoban_ragen_v2",
)


class CoinToss(TextEnvironment):
    """Guess the next toss: a minimal environment of a user's own."""

    rules = "Guess."
    action_names = ("Heads", "Tails")
    return_range = (0.0, 1.0)
    reward: object = 1.0

    def _begin(self, instance):
        return f"toss {instance.integers(1000)}", {"success": False}

    def _act(self, action):
        return "over", self.reward, True, False, {"success": True, "effective": True}


class IntegerReward(CoinToss):
    reward = 1


def test_all_promised_names_are_registered():
    assert set(BUILT_IN) <= set(registered_names())


@pytest.mark.parametrize(
    ("name", "arguments", "same_name", "same_arguments"),
    [
        ("frozen_lake_paper", {}, "frozen_lake", {}),
        ("bandit_ragen", {}, "bandit", {"low_reward": 0.1}),
        ("sokoban", {"lengths": "ragen", "max_optimal": 11}, "sokoban_paper", {}),
        ("sokoban", {}, "starpo.environments.sokoban:Sokoban", {}),
    ],
)
def test_one_task_has_one_canonical_form_whatever_its_spelling(name, arguments, same_name, same_arguments):
    assert canonical(name, arguments) == canonical(same_name, same_arguments)
    assert canonical(name, arguments) != canonical("bandit_paper", {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bandit_paper", {"low_reward": 0.15, "high_probability": 0.25}),
        ("bandit_ragen", {"low_reward": 0.1, "high_probability": 0.25}),
        ("frozen_lake_paper", {"size": 4, "frozen_probability": 0.8, "success_probability": 1 / 3}),
        (
            "frozen_lake_ragen_v2",
            {"size": 4, "frozen_probability": 0.9, "success_probability": 0.8, "coordinates": True},
        ),
        ("frozen_lake_ragen_v2_no_slip", {"frozen_probability": 0.9, "success_probability": 1.0}),
        ("sokoban_paper", {"size": (6, 6), "num_boxes": 1, "max_steps": 100, "lengths": "ragen"}),
        ("sokoban_large_paper", {"size": (8, 8), "num_boxes": 2, "max_steps": 100, "lengths": "ragen"}),
        ("sokoban_ragen_v2", {"size": (6, 6), "num_boxes": 1, "coordinates": True}),
    ],
)
def test_presets_have_the_published_values(name, expected):
    env = make(name)
    assert {each: getattr(env, each) for each in expected} == expected


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_environments_keep_the_contract(name, seed):
    check_environment(make(name), name=name, seed=seed)


@pytest.mark.parametrize("name", BUILT_IN)
def test_returns_stay_in_range_and_names_of_actions_are_matched_loosely(name):
    env = make(name)
    low, high = env.return_range
    for seed in range(20):
        env.reset(seed=seed)
        total, over = 0.0, False
        for turn in range(120):
            wanted = env.action_names[(turn * turn + seed) % len(env.action_names)]
            assert env.match_action(f"\n {wanted.lower()} ") == wanted
            _, reward, terminated, truncated, _ = env.step(wanted)
            total += reward
            over = terminated or truncated
            if over:
                break
        assert low - RETURN_TOLERANCE <= total <= high + RETURN_TOLERANCE
        assert over or "lake" in name  # only lakes leave the limit to the rollout


@pytest.mark.parametrize("name", BUILT_IN)
def test_unknown_actions_and_steps_before_reset_are_errors(name):
    env = make(name)
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("Left")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="unknown action 'Fly'"):
        env.step("Fly")
    assert env.match_action("Fly") is None


def test_arguments_override_registered_defaults():
    assert make("frozen_lake_8x8", size=5).size == 5
    assert make("sokoban_large").size == (8, 8)
    assert make("bandit", low_reward=0.15).low_reward == 0.15


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown environment 'frozenlake'; known: bandit, .*sokoban_large"):
        make("frozenlake")


def test_unknown_arguments_list_the_allowed_ones():
    with pytest.raises(TypeError, match="'bandit': unknown argument 'low', allowed: low_reward"):
        make("bandit", low=0.1)


def test_a_class_is_made_from_its_path():
    assert isinstance(make("starpo.environments.bandit:Bandit", low_reward=0.2), Bandit)


@pytest.mark.parametrize("path", ["no_such_module:Class", "starpo.environments.bandit:Missing"])
def test_a_wrong_path_is_named(path):
    with pytest.raises(ValueError, match=f"cannot import '{path}'"):
        make(path)


@pytest.mark.parametrize(("path", "built"), [("fractions:Fraction", "Fraction"), ("builtins:int", "int")])
def test_a_path_to_something_else_is_refused(path, built):
    with pytest.raises(
        TypeError, match=rf"'{path}' built a {built}, expected a subclass of .*TextEnvironment"
    ):
        make(path)


def test_registered_classes_are_made_and_a_name_is_not_taken_twice():
    register("coin_toss", CoinToss)
    register("coin_toss", CoinToss)  # the same again is harmless, as on a module's reload
    check_environment(make("coin_toss"))
    with pytest.raises(ValueError, match="'coin_toss' is already registered"):
        register("coin_toss", IntegerReward)


def test_a_wrong_return_type_names_environment_and_field():
    with pytest.raises(ContractError, match="'toss': step reward is 1 of type int, expected float"):
        check_environment(IntegerReward(), name="toss")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"return_range": (2.0, 3.0)}, "return is 1.0 .* within return_range"),
        ({"rules": None}, "rules is None"),
        ({"action_names": ("Go", "go")}, "action_names is .* differ by more than case"),
        ({"reward": float("nan")}, "step reward is nan .* finite"),
        ({"_begin": lambda self, instance: ("", {})}, r"reset info\['success'\] is None"),
        ({"_begin": lambda self, instance: ""}, "reset result is ''"),
        ({"_act": lambda self, action: ("", 0.0, 1, False, {})}, "step terminated is 1 of type int"),
        (
            {"step": lambda self, action: self._act(action)},
            "a step after the episode's end must raise RuntimeError",
        ),
    ],
)
def test_every_breach_of_the_contract_is_found(change, message):
    broken = type("Broken", (CoinToss,), change)
    with pytest.raises(ContractError, match=f"environment 'Broken': {message}"):
        check_environment(broken())

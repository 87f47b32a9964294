"""Environments of other libraries: they behave as the libraries themselves do, and keep the contract."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest

from starpo.environments.contract import ContractError, check_environment
from starpo.environments.registry import make
from starpo.environments.solvers import has_solver, optimal_actions
from starpo.environments.splits import Split, draw_instance
from starpo.errors import UserError
from starpo.seeds import Purpose, SeedKey

COMPASS = ["Left", "Down", "Right", "Up"]
TOY_TEXT: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {"action_names": COMPASS, "describe": "gymnasium_texts:grid", "split_by": "seed"},
    "CliffWalking-v1": {
        "action_names": ["Up", "Right", "Down", "Left"],
        "describe": "gymnasium_texts:grid",
        "success": "terminated",
        "split_by": "seed",
    },
    "Taxi-v4": {
        "action_names": ["South", "North", "East", "West", "Pick up", "Drop off"],
        "describe": "gymnasium_texts:taxi",
        "success": 20,
    },
    "Blackjack-v1": {
        "action_names": ["Stick", "Hit"],
        "describe": "gymnasium_texts:hand",
        "success": "gymnasium_texts:won",
    },
}


def toy(id: str, **changes: Any) -> Any:
    return make("gymnasium", id=id, rules="Play.", **TOY_TEXT[id] | changes)


@pytest.mark.parametrize("id", TOY_TEXT)
def test_toy_text_environments_keep_the_contract(id: str) -> None:
    check_environment(toy(id), name=id)


@pytest.mark.parametrize("dynamics_seed", [None, 77])
@pytest.mark.parametrize("id", TOY_TEXT)
def test_every_step_agrees_with_the_library_itself(id: str, dynamics_seed: int | None) -> None:
    env = toy(id)
    raw = gymnasium.make(id)
    texts = importlib.import_module("gymnasium_texts")
    describe = getattr(texts, TOY_TEXT[id]["describe"].split(":")[1])
    draw = np.random.default_rng(3)
    ends = 0
    for seed in range(6):
        options = {} if dynamics_seed is None else {"options": {"dynamics_seed": dynamics_seed}}
        text, _ = env.reset(seed=seed, **options)
        observation, _ = raw.reset(seed=seed)
        if dynamics_seed is not None:
            raw.unwrapped.np_random = np.random.Generator(np.random.PCG64(dynamics_seed))
        assert text == describe(raw.unwrapped, observation)
        for _ in range(60):
            number = int(draw.integers(len(env.action_names)))
            text, reward, terminated, truncated, _ = env.step(env.action_names[number])
            observation, *expected, _ = raw.step(number)
            assert (text, reward, terminated, truncated) == (describe(raw.unwrapped, observation), *expected)
            if terminated or truncated:
                ends += 1
                break
    assert ends or id in {"CliffWalking-v1", "Taxi-v4"}


def test_members_of_a_group_share_the_start_and_not_the_luck() -> None:
    env = toy("FrozenLake-v1")
    walks = set()
    for dynamics_seed in range(8):
        start, _ = env.reset(seed=5, options={"dynamics_seed": dynamics_seed})
        assert start == "cell 0"
        walks.add(tuple(env.step("Right")[0] for _ in range(2)) if not env._over else ())
    assert len(walks) > 1


def test_a_number_as_success_is_a_step_s_reward_and_terminated_is_the_end() -> None:
    taxi = toy("Taxi-v4")
    taxi.reset(seed=0)
    *_, destination = taxi.wrapped.unwrapped.decode(taxi.wrapped.unwrapped.s)
    # Put the passenger into the taxi at the destination: the next drop-off solves the task.
    there = taxi.wrapped.unwrapped.locs[destination]
    taxi.wrapped.unwrapped.s = taxi.wrapped.unwrapped.encode(*there, 4, destination)
    _, reward, terminated, _, info = taxi.step("Drop off")
    assert (reward, terminated, info["success"]) == (20.0, True, True)
    taxi.reset(seed=0)
    assert taxi.step("Pick up")[4]["success"] is False
    cliff = toy("CliffWalking-v1")
    cliff.reset(seed=0)
    for action in ("Up", *["Right"] * 11, "Down"):
        *_, terminated, _, info = cliff.step(action)
    assert terminated and info["success"]


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("id", ["Taxi-v4", "FrozenLake-v1"])
def test_every_split_has_instances(id: str, split: Split) -> None:
    env = toy(id)
    seeds = {
        draw_instance(env, split=split, key=SeedKey(0, Purpose.INSTANCE, "x", group=group)).seed
        for group in range(4)
    }
    assert len(seeds) == 4


class _TextActions(gymnasium.Env[str, str]):
    """Repeat the word; observations and actions are text already."""

    observation_space = gymnasium.spaces.Text(20)
    action_space = gymnasium.spaces.Text(20)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = f"word{self.np_random.integers(100)}"
        return self.word, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "over", float(action == self.word), True, False, {}


gymnasium.register("Echo-v0", _TextActions)


def test_text_observations_and_actions_need_no_description() -> None:
    env = make("gymnasium", id="Echo-v0", rules="Repeat.")
    check_environment(env)
    word, _ = env.reset(seed=1)
    assert env.match_action(f" {word} ") == word
    assert env.step(word)[1] == 1.0
    assert env.random_action(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "NoSuchThing-v0"}, "id is 'NoSuchThing-v0': NameNotFound"),
        ({"action_names": ["Left"]}, "action_names is .* one name for each of the 4 actions"),
        ({"describe": None}, "FrozenLake-v1 observes Discrete.* give describe"),
        (
            {"describe": "gymnasium_texts:nothing"},
            "describe is 'gymnasium_texts:nothing', expected module:function",
        ),
        ({"split_by": "luck"}, "split_by is 'luck', allowed: observation, seed"),
        ({"action_names": "LDRU"}, "action_names is 'LDRU', allowed: a list of names"),
        ({"success": None}, "success is None, allowed: a reward, terminated, or module:function"),
        ({"success": True}, "success is True, allowed: a reward, terminated, or module:function"),
        ({"return_range": [0]}, r"return_range is \[0\], allowed: two numbers"),
        ({"return_range": ["low", "high"]}, "return_range is .* allowed: two numbers"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    arguments = {"id": "FrozenLake-v1", "rules": "", **TOY_TEXT["FrozenLake-v1"]} | changes
    with pytest.raises(ValueError, match=message):
        make("gymnasium", **arguments)


class _Odd(gymnasium.Env[Any, Any]):
    """Numbers its actions from 5 on and observes a dictionary."""

    observation_space = gymnasium.spaces.Dict({"cell": gymnasium.spaces.Box(0, 9, (2,), np.int64)})
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        return {"cell": self.np_random.integers(9, size=2)}, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return {"cell": np.array([action, 0])}, np.float32(1), np.bool_(action == 6), False, {}


class _Steered(_Odd):
    action_space = gymnasium.spaces.Box(-1, 1)


gymnasium.register("Odd-v0", _Odd)
gymnasium.register("Steered-v0", _Steered)


def test_actions_that_do_not_start_at_0_and_observations_of_any_kind_can_be_named() -> None:
    arguments = {"rules": "Play.", "action_names": ["Five", "Six"]}
    env = make("gymnasium", id="Odd-v0", describe="gymnasium_texts:cells", **arguments)
    check_environment(env)
    env.reset(seed=0)
    assert env.step("Five")[:4] == ("[5 0]", 1.0, False, False)
    assert env.step("Six")[2] is True
    with pytest.raises(
        ValueError, match=r"the actions of Steered-v0 are Box.* Wrap it with gymnasium.ActionWrapper"
    ):
        make("gymnasium", id="Steered-v0", describe="gymnasium_texts:cells", **arguments)


def test_a_description_that_is_no_text_is_named() -> None:
    env = make(
        "gymnasium",
        id="Odd-v0",
        rules="Play.",
        action_names=["Five", "Six"],
        describe="gymnasium_texts:silent",
    )
    with pytest.raises(
        ContractError, match="'Odd-v0': describe's result is None of type NoneType, expected str"
    ):
        env.reset(seed=0)


@pytest.mark.parametrize("task", ["chain_sum", "spell_backward", "simple_equations"])
def test_reasoning_gym_tasks_keep_the_contract_and_their_answers_score_one(task: str) -> None:
    pytest.importorskip("reasoning_gym")
    env = make("reasoning_gym", task=task)
    check_environment(env, name=task)
    assert has_solver(env)
    for seed in range(5):
        question, _ = env.reset(seed=seed)
        (answer,) = optimal_actions(env)
        assert env.match_action(f" {answer}\n") == answer
        _, reward, terminated, _, info = env.step(answer)
        assert (reward, terminated, info["success"]) == (1.0, True, True)
        env.reset(seed=seed)
        _, reward, *_, info = env.step("no answer at all")
        assert reward < 1 and not info["success"]
    assert question


def test_a_reasoning_gym_question_is_the_library_s_own() -> None:
    library = pytest.importorskip("reasoning_gym")
    env = make("reasoning_gym", task="chain_sum", configuration={"max_terms": 3})
    question, _ = env.reset(seed=4)
    from starpo.environments.reasoning_gym_adapter import ITEMS

    number = int(gymnasium.utils.seeding.np_random(4)[0].integers(ITEMS))
    own = library.create_dataset("chain_sum", seed=0, size=ITEMS, max_terms=3)
    assert question == own[number]["question"]
    entry = own[number]
    for answer in (entry["answer"], "7", f"the answer is {entry['answer']}"):
        env.reset(seed=4)
        assert env.step(answer)[1] == own.score_answer(answer, entry)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "chess"}, "task is 'chess', allowed: .*chain_sum"),
        ({"task": "chain_sum", "configuration": {"seed": 3}}, "configuration sets 'seed'"),
        ({"task": "chain_sum", "configuration": {"speed": 3}}, "refuses configuration .*speed"),
    ],
)
def test_a_wrong_reasoning_gym_task_is_named(arguments: dict[str, Any], message: str) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ValueError, match=message):
        make("reasoning_gym", **arguments)


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is not None, reason="verifiers is installed")
def test_without_verifiers_the_error_says_how_to_get_it() -> None:
    with pytest.raises(UserError, match=r"verifiers: the library is not installed.*make test-verifiers"):
        make("verifiers", taskset="gsm8k")

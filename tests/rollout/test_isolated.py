"""Evaluation's calls into an environment in a process of its own: the same numbers, and no call that kills the run."""

from __future__ import annotations

import copy
import gc
import threading
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
from builders import raised_message
from isolated_environments import OwnBandit, Walk
from pydantic import ValidationError

from starpo.app.preflight import check_environment
from starpo.config.environment import EnvironmentConfig
from starpo.config.evaluation import EvaluationConfig, Suite
from starpo.environments.bandit import Bandit
from starpo.environments.contract import ContractError
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.records import Limits
from starpo.environments.registry import make, register
from starpo.environments.splits import Instance, Split
from starpo.errors import UserError
from starpo.evaluation.prompts import _instances, fixed_prompts
from starpo.evaluation.reference import suite_reference
from starpo.rollout.isolated import Build, EnvironmentBuilder, IsolatedEnvironment
from starpo.rollout.processes import EnvironmentLost

ALONE = EnvironmentConfig(name="own", step_limit_seconds=5)
WORKERS = ALONE.model_copy(update={"workers": 2})
HASTY = WORKERS.model_copy(update={"step_limit_seconds": 0.5, "start_limit_seconds": 20.0})
LIMITS = Limits(turns=2, actions_per_turn=2, actions=4)


def prompts(build: Build, name: str = "Planned", **arguments: Any) -> tuple[Instance, ...]:
    _instances.cache_clear()
    return fixed_prompts(
        f"isolated_environments:{name}", arguments, split=Split.TEST, seed=0, prompts=12, build=build
    )


def reference(build: Build, name: str = "Planned", **arguments: Any) -> dict[str, Any]:
    instances = [Instance(seed, 0, "") for seed in range(12)]
    return suite_reference(
        f"isolated_environments:{name}", arguments, instances, LIMITS, suite="own", seed=0, build=build
    )


def children() -> set[int]:
    gc.collect()
    return {each.pid for each in psutil.Process().children(recursive=True)}


AT = ("", "reset", "step", "split", "solver", "random action", "copy")
HOW = ("raise", "quit")


@pytest.mark.parametrize(
    ("name", "at", "how"),
    # Every pair of two of the three.
    [(name, at, HOW[(a + n) % 2]) for a, at in enumerate(AT) for n, name in enumerate(("Walk", "Planned"))],
)
def test_numbers_and_messages_are_those_of_this_process(name: str, at: str, how: str, caplog) -> None:
    found = []
    for config in (ALONE, WORKERS):
        caplog.clear()
        build = EnvironmentBuilder(config)
        found.append(
            (prompts(build, name, at=at, how=how), reference(build, name, at=at, how=how), caplog.text)
        )
    assert found[0] == found[1]
    assert ("optimum_success" in found[0][1]) is (name == "Planned" and at in ("", "split", "random action"))
    assert ("floor_success" in found[0][1]) is (at != "reset")


@pytest.mark.parametrize(
    ("at", "how"),
    [("reset", "exit"), ("step", "hang"), ("solver", "hang"), ("random action", "exit"), ("copy", "exit")],
)
def test_a_call_that_ends_its_process_or_never_returns_costs_itself_alone(at: str, how: str, caplog) -> None:
    before = children()
    whole = reference(EnvironmentBuilder(WORKERS))
    found = reference(EnvironmentBuilder(HASTY), at=at, how=how, one_in=2)
    assert found["prompts"]["instance_seed"] == whole["prompts"]["instance_seed"]
    why = "died in" if how == "exit" else "took longer than 0.5 s (environment.step_limit_seconds)"
    assert "the environment failed" in caplog.text
    assert why in caplog.text
    assert ("optimum_success" in found) is (at == "random action")
    assert children() == before


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_prompts_that_end_their_process_are_left_out(how: str, caplog) -> None:
    found = prompts(EnvironmentBuilder(HASTY), at="reset", how=how, one_in=40)
    starts = [int(each.observation.removeprefix("start ")) for each in found]
    assert len(set(starts)) == 12
    assert all(start % 40 for start in starts)


def test_an_environment_that_is_always_lost_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    message = raised_message(
        UserError, lambda: prompts(EnvironmentBuilder(WORKERS), at="reset", how="exit", one_in=1)
    )
    assert "EnvironmentGivenUp: its process was lost too often, the first time because" in message
    assert "died in reset (exit code 7)" in message


@pytest.mark.parametrize(
    ("how", "why"), [("exit", "died in build"), ("hang", "build took longer than 3 s"), ("raise", "broken")]
)
def test_an_environment_that_cannot_be_built_says_why(how: str, why: str) -> None:
    config = WORKERS.model_copy(update={"start_limit_seconds": 3.0})
    before = children()
    message = raised_message(
        UserError, lambda: reference(EnvironmentBuilder(config), at="constructor", how=how, one_in=1)
    )
    assert "cannot be built" in message
    assert why in message
    assert children() == before


def test_what_cannot_be_sent_is_named() -> None:
    message = raised_message(ContractError, lambda: prompts(EnvironmentBuilder(WORKERS), "Odd"))
    assert "Odd" in message and "reset's result cannot be sent to another process" in message
    message = raised_message(ContractError, lambda: prompts(EnvironmentBuilder(WORKERS), "Telling"))
    assert "Telling': reset's result cannot be sent to another process (RuntimeError: not for" in message
    register("sent_nowhere", partial(Walk, name=threading.Lock()))
    message = raised_message(UserError, lambda: EnvironmentBuilder(WORKERS)("sent_nowhere"))
    assert "module:Class" in message and "environment.workers = 0" in message


@pytest.mark.parametrize("name", ["SlowToClose", "OwnPlan", "Baseless", "Served"])
def test_habits_of_an_environment_change_no_number_and_leave_nothing_behind(name: str, caplog) -> None:
    before = children()
    found = []
    for config in (ALONE, HASTY):
        caplog.clear()
        found.append((reference(EnvironmentBuilder(config), name), caplog.text))
        assert children() == before
    assert found[0] == found[1]
    assert ("optimum_success" in found[0][0]) is (name != "Baseless")


@pytest.mark.parametrize("what", ["UserError", "Speechless", "Cancelled"])
def test_whatever_a_reset_raises_costs_a_prompt(what: str, caplog) -> None:
    found = prompts(EnvironmentBuilder(WORKERS), "Throwing", what=what)
    assert len({each.observation for each in found}) == 12
    assert what in caplog.text


@pytest.mark.parametrize("config", [ALONE, WORKERS], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Shouting", "environment 'Shouting': random_action's result is .* expected one of action_names"),
        ("Vague", r"environment 'Vague': step info\['success'\] is None"),
    ],
)
def test_a_breach_of_contract_in_random_play_is_named(
    config: EnvironmentConfig, name: str, message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        reference(EnvironmentBuilder(config), name)


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_an_environment_that_cannot_be_built_is_refused_before_any_work(how: str) -> None:
    own = {"name": "isolated_environments:Walk", "arguments": {"at": "constructor", "how": how, "one_in": 1}}
    config = EnvironmentConfig(**own, workers=1, start_limit_seconds=4.0)
    message = raised_message(UserError, lambda: check_environment("environment", config))
    assert message.startswith("environment: EnvironmentLost: ")
    assert ("died in build" in message) is (how == "exit")


def test_a_suite_s_own_environment_runs_where_that_of_the_training_does() -> None:
    suites = {"own": Suite(environment="isolated_environments:Walk", arguments={"one_in": 2}, prompts=1)}
    evaluation = EvaluationConfig(every=1, periodic=["own"], final=["own"], temperatures=[1.0], suites=suites)
    task = evaluation.task("own", HASTY)
    assert (task.name, task.arguments, task.mixture) == ("isolated_environments:Walk", {"one_in": 2}, None)
    assert (task.workers, task.step_limit_seconds, task.start_limit_seconds) == (2, 0.5, 20.0)


@pytest.mark.parametrize("name", ["step_limit_seconds", "start_limit_seconds"])
def test_a_limit_that_no_clock_can_count_to_is_refused_by_its_key(name: str) -> None:
    assert name in raised_message(ValidationError, lambda: EnvironmentConfig(name="own", **{name: 1e9}))


def test_what_solvers_look_into_stays_in_this_process() -> None:
    build = EnvironmentBuilder(WORKERS)
    assert type(build("bandit")) is Bandit
    assert type(build("frozen_lake_no_slip", size=5)) is FrozenLake
    assert type(build("isolated_environments:OwnBandit")) is OwnBandit


def test_it_is_used_like_the_environment_itself() -> None:
    env, twin = (
        EnvironmentBuilder(WORKERS)("isolated_environments:Planned", name="kept"),
        make("isolated_environments:Planned", name="kept"),
    )
    assert isinstance(env, IsolatedEnvironment)
    assert type(env).__name__ == "Planned"
    assert env.action_cost == twin.action_cost == 0.25
    draw, same = np.random.default_rng(3), np.random.default_rng(3)
    for seed in range(3):
        options = {"dynamics_seed": seed + 5}
        assert env.reset(seed=seed, options=options)[0] == twin.reset(seed=seed, options=options)[0]
        assert env.dynamics.bit_generator.state == twin.dynamics.bit_generator.state
        for _ in range(3):
            action = env.random_action(draw)
            assert action == twin.random_action(same)
            assert env.step(action) == twin.step(action)
            assert env._over == twin._over
            if env._over:
                break
        assert draw.bit_generator.state == same.bit_generator.state
    with pytest.raises(Exception, match="step after the episode ended"):
        while True:
            env.step("Right")


def test_the_others_of_a_process_go_on_where_they_were() -> None:
    build, alone, before = EnvironmentBuilder(WORKERS), EnvironmentBuilder(ALONE), children()
    how = {"at": "step", "how": "exit", "one_in": 2}  # an even start ends the process at its first step
    envs, twins = ([each("isolated_environments:Walk", **how) for _ in range(3)] for each in (build, alone))
    assert len(children() - before) == 1
    starts = {seed: Walk().reset(seed=seed)[0] for seed in range(20)}
    odd = [seed for seed, start in starts.items() if int(start[-1]) % 2]
    even = next(seed for seed in starts if seed not in odd)
    for seed, env, twin in zip(odd, envs, twins, strict=False):
        for each in (env, twin):
            each.reset(seed=seed, options={"dynamics_seed": seed})
        assert env.step("Right") == twin.step("Right")
    copies = copy.deepcopy(envs[1:])
    envs[0].reset(seed=even)
    with pytest.raises(EnvironmentLost, match="died in step"):
        envs[0].step("Left")
    for env, other, twin in zip(envs[1:], copies, twins[1:], strict=True):
        after = twin.step("Left")
        assert other.step("Right") != after
        assert env.step("Left") == after
        assert env.dynamics.bit_generator.state == twin.dynamics.bit_generator.state


def test_after_a_loss_only_a_reset_goes_on() -> None:
    env = EnvironmentBuilder(WORKERS)("isolated_environments:Walk", at="step", how="exit", one_in=1)
    env.reset(seed=1)
    for message in ("died in step .exit code 7.", "reset first"):
        with pytest.raises(EnvironmentLost, match=message):
            env.step("Left")
    assert env.reset(seed=1)[0] == make("isolated_environments:Walk").reset(seed=1)[0]

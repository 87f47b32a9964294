"""An environment of a user's own that fails now and then costs what it failed at, never the evaluation."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from builders import agent, raised_message
from isolated_environments import Walk
from played import play, read

from starpo.config.environment import EnvironmentConfig
from starpo.config.evaluation import EvaluationConfig, Suite
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError
from starpo.environments.records import Limits
from starpo.environments.splits import Instance, Split
from starpo.errors import UserError
from starpo.evaluation.diagnosis import diagnose
from starpo.evaluation.prompts import _instances, fixed_prompts
from starpo.evaluation.reference import suite_reference
from starpo.pipelines.evaluate.nodes import refer_suite
from starpo.rollout.isolated import EnvironmentBuilder

LIMITS = Limits(turns=2, actions_per_turn=2, actions=4)


class Fragile(TextEnvironment):
    """``Go`` wins by luck, half the time. Fails where ``at`` says, for a ``share`` of instances or of luck."""

    rules, action_names, return_range = "Go.", ("Go", "Stay"), (0.0, 1.0)

    def __init__(self, *, at: str = "nowhere", share: float = 0.5, kind: str = "RuntimeError") -> None:
        super().__init__()
        self.at, self.share, self.kind = at, share, kind

    def fail(self, at: str, draw: np.random.Generator) -> None:
        if at == self.at and draw.random() < self.share:
            raise {
                "RuntimeError": RuntimeError,
                "KeyError": KeyError,
                "OSError": OSError,
                "SystemExit": SystemExit,
            }[self.kind]("broken")

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        number = int(instance.integers(10**6))
        self.fail("instance", instance)
        self.fail("luck", self.dynamics)
        return f"number {number}", {"success": False}

    def _act(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.fail("step", self.dynamics)
        won = bool(action == "Go" and self.dynamics.random() < 0.5)
        return action, float(won), won, False, {"success": won, "effective": True}

    def random_action(self, draw: np.random.Generator) -> str:
        self.fail("random action", draw)
        return super().random_action(draw)


class Solving(Fragile):
    """Has a solver that fails where ``at`` says, or cannot be copied."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        if self.at == "copy":
            self.lock = threading.Lock()

    def optimal_actions(self) -> Any:
        self.fail("solver", np.random.default_rng(0))
        return None if self.at == "type" else ["Go"]


def prompts_of(**arguments: Any) -> tuple[Instance, ...]:
    return fixed_prompts(f"{__name__}:Fragile", arguments, split=Split.TEST, seed=0, prompts=20)


def reference(name: str, **arguments: Any) -> dict[str, Any]:
    instances = [Instance(seed, 0, "") for seed in range(8)]
    return suite_reference(f"{__name__}:{name}", arguments, instances, LIMITS, suite="suite", seed=0)


@pytest.mark.parametrize("kind", ["RuntimeError", "KeyError", "OSError", "SystemExit"])
def test_a_prompt_that_fails_is_left_out_and_the_others_fill_the_suite(kind: str, caplog) -> None:
    found = prompts_of(at="instance", share=0.2, kind=kind)
    assert len({each.observation for each in found}) == 20
    assert caplog.text.count("test prompts whose reset fails are left out; the first: ") == 1
    assert "broken" in caplog.text and "reset(seed=" in caplog.text
    _instances.cache_clear()
    assert found == prompts_of(at="instance", share=0.2, kind=kind)


def test_an_environment_that_never_begins_says_so_with_its_error() -> None:
    message = raised_message(UserError, lambda: prompts_of(at="instance", share=1.0))
    assert (
        "its reset failed 201 times in a row, after 0 prompts that it made; last: RuntimeError: broken"
        in message
    )


def test_an_environment_that_breaks_for_good_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def begin(self: Fragile, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        if len(made) > 40:
            raise ConnectionError("the service is gone")
        made.append(str(instance.integers(10**6)))
        return made[-1], {"success": False}

    monkeypatch.setattr(Fragile, "_begin", begin)
    message = raised_message(UserError, lambda: prompts_of(at="service"))
    assert "prompts that it made; last: ConnectionError: the service is gone" in message


@pytest.mark.parametrize("at", ["luck", "step", "random action"])
def test_the_floor_is_that_of_the_episodes_that_began(at: str) -> None:
    whole, failing = reference("Fragile"), reference("Fragile", at=at, share=0.5)
    assert failing["floor_episodes"] == whole["floor_episodes"]
    assert failing["floor_success"] > 0
    if at == "luck":
        assert failing["floor_success"] == pytest.approx(whole["floor_success"], abs=0.15)
    else:
        assert failing["floor_success"] < whole["floor_success"]


def test_a_prompt_that_never_begins_leaves_the_suite_without_a_floor() -> None:
    assert set(reference("Fragile", at="instance", share=1.0)["prompts"]) == {"instance_seed"}


@pytest.mark.parametrize("at", ["solver", "copy"])
def test_a_solver_that_fails_costs_the_optimum_and_says_so(at: str, caplog) -> None:
    found = reference("Solving", at=at, share=1.0)
    assert "optimum_success" not in found
    assert "floor_success" in found
    assert "the environment failed 8 times; the first: " in caplog.text
    assert caplog.text.count("failed") == 1


def test_a_solver_that_gives_no_list_is_a_breach_of_contract() -> None:
    with pytest.raises(ContractError, match="optimal_actions' result is None"):
        reference("Solving", at="type")


@pytest.mark.parametrize("at", ["luck", "instance", "step"])
def test_a_replay_that_fails_leaves_what_was_stored(at: str) -> None:
    stored = [play(Fragile(), [["Stay"], ["Stay"]], group=group, instance_seed=group) for group in range(4)]
    result = diagnose(Fragile(at=at, share=1.0), read(*stored), seed=0)
    assert [row["label"] for row in result.labels] == ["turn_limit"] * 4
    assert result.metrics["luck_method"] == "unknown"


def test_a_failure_under_another_luck_is_no_success() -> None:
    won = [seed for seed in range(60) if read(play(Fragile(), [["Go"]], dynamics_seed=seed)).success[0]]
    rows = [
        play(Fragile(), [["Go"]], group=n, instance_seed=n, dynamics_seed=seed) for n, seed in enumerate(won)
    ]

    class LaterBroken(Fragile):
        """Its first reset under a luck works, all others fail."""

        def __init__(self) -> None:
            super().__init__()
            self.known = set(won)

        def reset(self, *, seed=None, options=None):
            if options["dynamics_seed"] not in self.known:
                raise OSError("broken")
            return super().reset(seed=seed, options=options)

    result = diagnose(LaterBroken(), read(*rows), seed=0)
    assert result.metrics["luck_method"] == "replay"
    assert result.metrics["luck_failed_share"] == 1.0


@pytest.mark.parametrize("at", ["reset", "step"])
def test_a_replay_that_ends_its_process_leaves_what_was_stored(at: str) -> None:
    stored = [play(Walk(), [["Left"], ["Left"]], group=group, instance_seed=group) for group in range(4)]
    build = EnvironmentBuilder(EnvironmentConfig(name="own", workers=1))
    env = build("isolated_environments:Walk", at=at, how="exit", one_in=1)
    result = diagnose(env, read(*stored), seed=0)
    assert [row["label"] for row in result.labels] == ["turn_limit"] * 4
    assert result.metrics["luck_method"] == "unknown"
    whole = diagnose(build("isolated_environments:Walk"), read(*stored), seed=0)
    assert whole == diagnose(Walk(), read(*stored), seed=0)


def test_the_reference_of_a_suite_survives_an_environment_that_ends_its_process(caplog) -> None:
    own = EnvironmentConfig(
        name="isolated_environments:Walk", arguments={"at": "step", "how": "exit", "one_in": 3}, workers=1
    )
    evaluation = EvaluationConfig(
        every=1,
        periodic=["own"],
        final=["own"],
        temperatures=[1.0],
        suites={"own": Suite(split="test", prompts=4)},
    )
    found = refer_suite(evaluation, own, agent(max_turns=2, max_actions=4), suite="own")
    assert len(found["prompts"]["instance_seed"]) == 4
    assert "the worker process died in step (exit code 7)" in caplog.text

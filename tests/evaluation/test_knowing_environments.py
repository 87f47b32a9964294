"""What a user's environment knows of its own play is used as the built-in ones' knowledge is, here and elsewhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from builders import agent, base_policy_config
from knowing_environments import LANDS, Knowing
from played import play, read

from starpo.base_policy.demonstrations import Demonstrator
from starpo.config.environment import EnvironmentConfig
from starpo.environments.contract import ContractError
from starpo.environments.records import Limits
from starpo.environments.splits import Instance
from starpo.evaluation.diagnosis import diagnose
from starpo.evaluation.reference import suite_reference
from starpo.rollout.isolated import EnvironmentBuilder

NAME = "knowing_environments:Knowing"
LIMITS = Limits(turns=2, actions_per_turn=2, actions=4)
HERE = EnvironmentConfig(name=NAME, workers=0)
ELSEWHERE = EnvironmentConfig(name=NAME, workers=1)


@pytest.fixture(params=[HERE, ELSEWHERE], ids=["here", "elsewhere"])
def build(request: pytest.FixtureRequest) -> EnvironmentBuilder:
    return EnvironmentBuilder(request.param)


def test_its_solver_plays_careful_turns_and_gives_the_optimum_and_its_floor_is_not_played(build) -> None:
    env = build(NAME)
    env.reset(seed=0)
    stage = base_policy_config().stages[0].model_copy(update={"careful_share": 1.0, "malformed_share": 0.0})
    text = Demonstrator(stage, agent(), 1).respond(env, np.random.default_rng(0))
    assert text.endswith("<answer>Jump</answer>")
    found = suite_reference(NAME, {}, [Instance(1, 0, "")], LIMITS, suite="own", seed=0, build=build)
    assert found["prompts"] == {
        "instance_seed": [1],
        "optimum_success": [LANDS],
        "optimum_return": [LANDS],
        "floor_success": [LANDS / 2],
        "floor_return": [LANDS / 2],
    }
    assert found["floor_episodes"] == 0


def test_its_labels_and_its_luck_are_in_the_diagnosis(build) -> None:
    outcomes = {
        bool(read(play(Knowing(), [["Jump"]], dynamics_seed=seed)).success[0]): seed for seed in range(9)
    }
    rows = [
        play(Knowing(), [["Jump"]], group=0, dynamics_seed=outcomes[True]),
        play(Knowing(), [["Jump"]], group=1, dynamics_seed=outcomes[False]),
        play(Knowing(), [["Wait"]], group=2),
    ]
    result = diagnose(build(NAME), read(*rows), seed=0)
    assert [(row["group"], row["label"], row["chance"]) for row in result.labels] == [
        (1, "fell", LANDS),
        (2, "waited", None),
    ]
    assert list(result.metrics)[:4] == [
        "failures.environment_error",
        "failures.waited",
        "failures.fell",
        "failures.ended",
    ]
    assert result.metrics["failures.fell"] == result.metrics["failures.waited"] == pytest.approx(1 / 3)
    assert result.metrics["luck_method"] == "exact"
    assert result.metrics["luck_failed_share"] == pytest.approx(1 - LANDS)


@pytest.mark.parametrize("method", ["best_play", "random_play", "chance_of", "state", "own_failure"])
def test_an_answer_of_the_wrong_kind_is_a_breach_that_names_its_method(method: str) -> None:
    env = Knowing(strange=method)
    lost = next(
        seed for seed in range(9) if not read(play(Knowing(), [["Jump"]], dynamics_seed=seed)).success[0]
    )
    with pytest.raises(ContractError, match=f"'Knowing': {method}'s result is "):
        if method.endswith("play"):
            suite_reference(NAME, {"strange": method}, [Instance(1, 0, "")], LIMITS, suite="own", seed=0)
        else:
            diagnose(env, read(play(Knowing(), [["Jump"]], dynamics_seed=lost)), seed=0)


def test_what_knows_less_is_measured_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Knowing, *arguments: object) -> None:
        raise KeyError("broken")

    rows = [play(Knowing(), [["Jump"]], group=seed, dynamics_seed=seed) for seed in range(40)]
    for name in ("random_play", "chance_of", "own_failure"):
        monkeypatch.setattr(Knowing, name, fail)
    found = suite_reference(NAME, {}, [Instance(1, 0, "")], LIMITS, suite="own", seed=0)
    assert found["floor_episodes"] > 0
    result = diagnose(Knowing(), read(*rows), seed=0)
    assert {row["label"] for row in result.labels} == {"ended"}
    assert 0 < result.metrics["luck_failed_share"] < 1


def test_a_run_on_one_environment_imports_no_other() -> None:
    code = (
        "import sys, starpo.evaluation.diagnosis, starpo.evaluation.reference, starpo.reporting.trajectories\n"
        "import starpo.base_policy.demonstrations, starpo.monitor.glossary\n"
        "from starpo.environments.registry import make; from starpo.environments.solvers import optimal_actions\n"
        "env = make('bandit'); env.reset(seed=0); optimal_actions(env)\n"
        "print([name for name in sys.modules if name.startswith('starpo.environments.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "starpo.environments.bandit" in done.stdout
    for other in ("webshop", "frozen_lake", "sokoban.", "sokoban_solver", "sokoban_generator"):
        assert f"starpo.environments.{other}" not in done.stdout

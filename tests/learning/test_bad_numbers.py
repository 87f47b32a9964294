"""Numbers that nothing can be computed with: where they are refused, and that no network learns from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_objectives
import pytest
import torch
from builders import agent, algorithm, engine_config, learner_config, optimizer, raised_message, sealed, store
from safetensors.torch import load_file, save_file
from test_trained_module import batch as regression
from test_trained_module import loss_of, same, take_step, trained

from starpo.errors import UserError
from starpo.learning.batching import Sequences
from starpo.learning.learner import Learner
from starpo.rollout.host import EngineHost
from starpo.store.policies import Policy
from starpo.store.policy_state import MODEL, STATE_FILES

pytestmark = pytest.mark.slow

STAGES = [(stage, dtype) for stage in range(4) for dtype in ("float32", "bfloat16")]
BAD = [math.nan, math.inf, -1e38]


@pytest.fixture(autouse=True)
def fresh_calls() -> Iterator[None]:
    odd_objectives.calls.clear()
    yield


def state(module: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], int]:
    return module.weights(), module.moments(), module.steps


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize(("stage", "dtype"), STAGES)
def test_a_step_with_such_a_gradient_changes_nothing_and_the_next_one_is_as_if_it_had_not_been(
    stage: int, dtype: str, value: float
) -> None:
    module, twin = trained(stage=stage, dtype=dtype), trained(stage=stage, dtype=dtype)
    for each in (module, twin):
        take_step(each, 0)
    x, y = (tensor.to(getattr(torch, dtype)) for tensor in regression(1))
    module.backward(loss_of(module, x, y, len(x)), last=False)
    module.backward(loss_of(module, x, y, len(x)) * value, last=True)
    norm, _ = module.step()
    assert not math.isfinite(norm)
    assert module.steps == twin.steps == 1
    assert same(module.weights(), twin.weights())
    assert same(module.moments(), twin.moments())
    for step in (2, 3):
        assert take_step(module, step) == take_step(twin, step)
        assert same(module.weights(), twin.weights())
        assert same(module.moments(), twin.moments())


@pytest.mark.parametrize(("stage", "dtype"), STAGES)
def test_a_step_that_throws_the_weights_away_ends_the_run(stage: int, dtype: str) -> None:
    module = trained(stage=stage, dtype=dtype, learning_rate=1e37)
    message = raised_message(UserError, lambda: take_step(module, 0))
    assert "learning rate 1e+37" in message and "of an entry of" in message
    assert "lower learning_rate" in message


@pytest.mark.parametrize("where", ["advantages", "returns"])
@pytest.mark.parametrize("value", BAD)
def test_an_estimator_s_number_is_refused_before_any_step_with_its_name_and_the_trajectory(
    tiny_policy: Policy, batch: Sequences, value: float, where: str
) -> None:
    algo = algorithm(
        estimator="odd_objectives:spoilt", estimator_parameters={"value": str(value), "where": where}
    )
    actor = Learner(tiny_policy, learner_config(), algo, temperature=1.0)
    before = actor.weights()
    message = raised_message(UserError, lambda: actor.update(batch, seed=0, iteration=7))
    for part in ("iteration 7", "'odd_objectives:spoilt'", f"gave {value:g}", "group 0, member 2"):
        assert part in message
    assert ("as returns" in message) is (where == "returns")
    assert same(actor.weights(), before)
    assert actor.counters()["actor_steps"] == 0


def failing_learner(policy: Policy, bad: list[int], *, value: float = math.inf, **changes: Any) -> Learner:
    algo = algorithm(
        policy_loss="odd_objectives:failing", policy_loss_parameters={"bad": bad, "value": str(value)}
    )
    return Learner(policy, learner_config(**{"epochs": 2} | changes), algo, temperature=1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_step_whose_loss_is_not_finite_is_counted_and_leaves_no_trace(
    tiny_policy: Policy, batch: Sequences, value: float, stage: int
) -> None:
    # In four steps of eight trajectories the second one fails; a loss of infinity has a finite gradient.
    actor = failing_learner(tiny_policy, [1], value=value, zero_stage=stage)
    result = actor.update(batch, seed=0, iteration=0)
    assert result.metrics["bad_steps"] == 1.0
    assert result.metrics["bad_step_cause"].startswith("actor: policy loss of up to ")
    assert "group 3, member " in result.metrics["bad_step_cause"]
    assert result.metrics["actor_steps"] == actor.counters()["actor_steps"] == 3
    assert result.metrics["critic_steps"] == 4
    numbers = [number for number in result.metrics.values() if not isinstance(number, str)]
    assert all(math.isfinite(number) for number in numbers)
    assert actor.counters().keys() == {"actor_steps", "critic_steps"}, "the row has ended"


def test_a_critic_whose_gradient_is_not_finite_does_not_learn_while_the_actor_does(
    tiny_policy: Policy, batch: Sequences
) -> None:
    actor = Learner(tiny_policy, learner_config(), algorithm(), temperature=1.0)
    assert actor._critic is not None
    next(actor._critic.engine.module.head.parameters()).register_hook(lambda gradient: gradient / 0)
    before = actor.parts()
    result = actor.update(batch, seed=0, iteration=0)
    assert result.metrics["bad_steps"] == 2.0
    assert result.metrics["bad_step_cause"].startswith("critic: gradient norm ")
    after = actor.parts()
    for part in ("critic", "critic_moments"):
        assert same(after[part], before[part])
    assert not same(after["actor_moments"], before["actor_moments"])
    assert actor.counters() == {"actor_steps": 2, "critic_steps": 0, "critic_bad_steps": 2}


def test_too_many_in_a_row_end_the_run_also_over_iterations_and_a_resume(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    actor = failing_learner(tiny_policy, [2, 3, 4])
    actor.update(batch, seed=0, iteration=0)
    assert actor.counters()["actor_bad_steps"] == 2
    stored = store(
        tmp_path,
        model_files=tiny_policy.directory,
        weights=actor.weights(),
        iteration=1,
        status="trained",
        counters=actor.counters() | {"skipped": 0},
        parts=actor.parts(),
    )
    message = raised_message(UserError, lambda: actor.update(batch, seed=0, iteration=1))
    for part in ("iteration 1: ", "last 3 optimizer steps of the actor", "learner.max_bad_steps = 3"):
        assert part in message
    assert "the first in iteration 0: policy loss of up to inf in 1 trajectory (group " in message
    odd_objectives.calls[:] = [0] * 4
    resumed = failing_learner(stored, [2, 3, 4])
    message = raised_message(UserError, lambda: resumed.update(batch, seed=0, iteration=1))
    assert "last 3 optimizer steps" in message and "before this start of the run" in message
    odd_objectives.calls[:] = [0] * 4
    patient = failing_learner(stored, [2, 3, 4], max_bad_steps=4)
    assert patient.update(batch, seed=0, iteration=1).metrics["bad_steps"] == 1.0


def test_a_gradient_without_end_names_the_trajectories_of_its_step(
    tiny_policy: Policy, batch: Sequences
) -> None:
    actor = Learner(
        tiny_policy,
        learner_config(max_bad_steps=1, critic=optimizer()),
        algorithm(estimator="grpo"),
        temperature=1.0,
    )
    next(actor._actor.engine.module.parameters()).register_hook(lambda gradient: gradient * math.nan)
    message = raised_message(UserError, lambda: actor.update(batch, seed=0, iteration=0))
    assert "gradient norm nan over 8 trajectories (group 0, member " in message


def edited(policy: Policy, batch: Sequences, folder: Path, file: str, value: float) -> tuple[Policy, Path]:
    """A trained policy whose ``file`` has one number changed on disk."""
    actor = Learner(policy, learner_config(), algorithm(), temperature=1.0)
    actor.update(batch, seed=0, iteration=0)
    counters = actor.counters() | {"skipped": 0}
    stored = store(
        folder,
        model_files=policy.directory,
        weights=actor.weights(),
        iteration=1,
        status="trained",
        counters=counters,
        parts=actor.parts(),
    )
    path = stored.directory / file
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = value
    save_file(tensors, path, metadata={"format": "pt"})
    return sealed(stored), path


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("file", [MODEL, *STATE_FILES.values()])
def test_a_stored_state_with_such_a_number_is_refused_by_its_file_s_name(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path, file: str, value: float
) -> None:
    stored, path = edited(tiny_policy, batch, tmp_path, file, value)
    message = raised_message(
        UserError, lambda: Learner(stored, learner_config(), algorithm(), temperature=1.0)
    )
    assert message.startswith(f"{path}: tensor ") and f"holds {value:g}" in message
    assert "restore the file, or remove its policy's folder" in message


@pytest.mark.parametrize("value", BAD)
def test_no_engine_takes_weights_with_such_a_number(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path, value: float
) -> None:
    stored, path = edited(tiny_policy, batch, tmp_path, MODEL, value)
    config = engine_config(kind="transformers")
    fresh = EngineHost()
    assert raised_message(UserError, lambda: fresh.serve(stored, config, agent())).startswith(f"{path}: ")
    serving = EngineHost()
    serving.serve(tiny_policy, config, agent())
    assert raised_message(UserError, lambda: serving.serve(stored, config, agent())).startswith(f"{path}: ")

"""The warm start of a model that comes from elsewhere."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import LAKE, agent, base_policy_config, raised_message
from pydantic import ValidationError

from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.base_policy.demonstrations import demonstrate
from starpo.base_policy.warm_start import build_base_policy, new_model, warm_start_pretrained
from starpo.config.base_policy import WarmStartStage
from starpo.config.environment import EnvironmentConfig
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.splits import Split
from starpo.errors import UserError
from starpo.rollout.vllm_engine import stored_weights
from starpo.store.policies import Policy, load_tokenizer


@pytest.fixture
def tied_model(tiny_policy: Policy, tmp_path: Path) -> Path:
    """A model directory with random weights, whose output head is its embedding."""
    for file in tiny_policy.model_directory.glob("*token*"):
        shutil.copy2(file, tmp_path)
    for file in tiny_policy.model_directory.glob("chat_template*"):
        shutil.copy2(file, tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    model = new_model(len(tokenizer), ChatTemplate.of(tokenizer), agent(), base_policy_config())
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path)
    return tmp_path


def test_a_pretrained_model_learns_what_is_demonstrated_and_keeps_its_tensors_names(tied_model: Path) -> None:
    weights = dict(stored_weights(tied_model))
    assert "lm_head.weight" not in weights
    fitted, fit = warm_start_pretrained(tied_model, weights, LAKE, agent(), base_policy_config())
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in fitted.items()} == {
        name: (tensor.shape, torch.float32) for name, tensor in weights.items()
    }
    assert all(not torch.equal(fitted[name], weights[name]) for name in weights)
    assert fit["loss_0"] < 0.5 * math.log(len(load_tokenizer(tied_model)))


def test_the_same_demonstrations_fit_the_same_weights(tied_model: Path) -> None:
    weights = dict(stored_weights(tied_model))
    few = base_policy_config(stages=[WarmStartStage(demonstrations=20, learning_rate=0.01)])
    first, second = (warm_start_pretrained(tied_model, weights, LAKE, agent(), few)[0] for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in weights)


def test_a_second_stage_goes_on_from_the_first(tmp_path: Path) -> None:
    stages = [WarmStartStage(demonstrations=20, learning_rate=0.01) for _ in range(2)]
    after = [
        build_base_policy(tmp_path / str(count), LAKE, agent(), base_policy_config(stages=stages[:count]))
        for count in (1, 2)
    ]
    (first, _), (second, fit) = after
    assert fit["loss_1"] < fit["loss_0"]
    assert all(not torch.equal(first[name], second[name]) for name in first)


class Failing(TextEnvironment):
    """Never ends, and fails where ``at`` says as ``kind`` says."""

    rules, action_names, return_range = "Go.", ("Go", "Stay"), (0.0, 1.0)

    def __init__(self, *, at: str, kind: type[BaseException]) -> None:
        super().__init__()
        self.at, self.kind = at, kind

    def fail(self, at: str) -> None:
        if at == self.at:
            raise self.kind("a bug of mine")

    def reset(self, **start: Any) -> tuple[str, dict[str, Any]]:
        begun = super().reset(**start)
        return (None, {}) if self.at == "result" else begun  # type: ignore[return-value]

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self.fail("reset")
        return f"number {instance.integers(10**6)}", {"success": False}

    def _act(self, action: str) -> StepResult:
        return action, 0.0, False, False, {"success": False, "effective": True}

    def declared_split(self) -> Split:
        return Split.TEST if self.at == "split" else Split.TRAIN

    def optimal_actions(self) -> list[str]:
        self.fail("solver")
        return ["Go"]

    def random_action(self, draw: np.random.Generator) -> str:
        self.fail("random action")
        return super().random_action(draw)


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, OSError, SystemExit])
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("reset", ["a bug of mine", "reset(seed="]),
        ("solver", ["a bug of mine"]),
        ("random action", ["a bug of mine"]),
        ("result", ["reset observation"]),
        ("split", ["no instance of split 'train'"]),
    ],
)
@pytest.mark.parametrize("tokenizer", [True, False], ids=["embedded", "pretrained"])
def test_a_failure_of_the_environment_is_named_with_its_error_and_what_to_do(
    tiny_policy: Policy,
    tmp_path: Path,
    at: str,
    expected: list[str],
    kind: type[BaseException],
    tokenizer: bool,
) -> None:
    own = EnvironmentConfig(name=f"{__name__}:Failing", arguments={"at": at, "kind": kind})
    share = 0.0 if at == "random action" else 1.0
    stages = [WarmStartStage(demonstrations=4, careful_share=share, learning_rate=0.01)]
    config = base_policy_config(stages=stages)

    def build() -> None:
        if tokenizer:
            build_base_policy(tmp_path / "policy", own, agent(), config)
        else:
            demonstrate(own, agent(), config, 0, ChatTemplate.of(tiny_policy.tokenizer()))

    message = raised_message(UserError, build)
    assert message.startswith("environment '") and "Failing'" in message
    # That a split is empty is said by the stage, as in a rollout.
    if tokenizer or at != "split":
        assert "Failing' failed while it was demonstrated for the base policy: " in message
        assert "docs/add_an_environment.md" in message
    for part in [*expected, *([kind.__name__] if "a bug of mine" in expected else [])]:
        assert part in message


@pytest.mark.parametrize(
    ("how", "why", "at_last"),
    [
        ("raise", "KeyError: 'broken'", "12 of 12 demonstrations ended in an error, the first: "),
        (
            "exit",
            "died in step (exit code 7)",
            "the first time because the worker process died in step",
        ),
        (
            "hang",
            "step took longer than 1 s (environment.step_limit_seconds)",
            "the first time because step took longer than 1 s",
        ),
    ],
)
def test_demonstrations_that_fail_are_counted_and_refused_where_they_are_most(
    tiny_policy: Policy, how: str, why: str, at_last: str, caplog: pytest.LogCaptureFixture
) -> None:
    stages = [WarmStartStage(demonstrations=12, careful_share=1.0, learning_rate=0.01)]
    template = ChatTemplate.of(tiny_policy.tokenizer())

    def demonstrated(one_in: int) -> list[Trajectory]:
        own = EnvironmentConfig(
            name="isolated_environments:Planned",
            arguments={"at": "step", "how": how, "one_in": one_in},
            workers=int(how != "raise"),
            step_limit_seconds=1.0,
        )
        return demonstrate(own, agent(), base_policy_config(stages=stages), 0, template)

    found = demonstrated(24)
    failed = [each for each in found if each.stop_reason is StopReason.ENVIRONMENT_ERROR]
    assert 0 < len(failed) < 6
    assert all(why in each.error for each in failed)
    assert f"{len(failed)} of 12 demonstrations ended in an error, the first: " in caplog.text
    assert all(len(each.turns) for each in found if each not in failed)
    assert at_last in raised_message(UserError, lambda: demonstrated(1))


def test_only_a_pretrained_model_is_fitted_and_only_when_asked_for() -> None:
    assert not base_policy_config(path="somewhere").fit_pretrained
    assert "needs a path" in raised_message(ValidationError, lambda: base_policy_config(fit_pretrained=True))
    with pytest.raises(ValidationError):
        base_policy_config(path="somewhere", stages=[])


def test_a_base_policy_that_is_not_fitted_is_named_as_before_there_was_a_choice() -> None:
    assert "fit_pretrained" not in base_policy_config(path="somewhere").model_dump()
    assert base_policy_config(path="somewhere", fit_pretrained=True).model_dump()["fit_pretrained"] is True

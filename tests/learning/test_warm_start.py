"""The warm start of a model that comes from elsewhere."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
from builders import LAKE, agent, base_policy_config, raised_message
from pydantic import ValidationError

from starpo.agent.template import ChatTemplate
from starpo.config.base_policy import WarmStartStage
from starpo.learning.policy import Policy, load_tokenizer
from starpo.learning.warm_start import new_model, warm_start_pretrained
from starpo.rollout.vllm_engine import stored_weights


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


def test_only_a_pretrained_model_is_fitted_and_only_when_asked_for() -> None:
    assert not base_policy_config(path="somewhere").fit_pretrained
    assert "needs a path" in raised_message(ValidationError, lambda: base_policy_config(fit_pretrained=True))
    with pytest.raises(ValidationError):
        base_policy_config(path="somewhere", stages=[])


def test_a_base_policy_that_is_not_fitted_is_named_as_before_there_was_a_choice() -> None:
    assert "fit_pretrained" not in base_policy_config(path="somewhere").model_dump()
    assert base_policy_config(path="somewhere", fit_pretrained=True).model_dump()["fit_pretrained"] is True

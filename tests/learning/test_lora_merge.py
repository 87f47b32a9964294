"""Merging an adapter into its base, by hand on two matrices."""

from __future__ import annotations

import torch

from starpo.config.learner import LoraConfig
from starpo.learning.lora import from_file_names, merge, to_file_names


def test_the_product_of_an_adapter_is_added_with_alpha_over_rank() -> None:
    base = {
        "layer.q_proj.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "layer.norm.weight": torch.tensor([5.0, 6.0]),
    }
    adapter = {
        "base_model.model.layer.q_proj.lora_A.weight": torch.tensor([[1.0, -1.0]]),
        "base_model.model.layer.q_proj.lora_B.weight": torch.tensor([[0.5], [2.0]]),
    }
    merged = merge(base.items(), adapter, LoraConfig(rank=2, alpha=8))
    # B A is [[0.5, -0.5], [2, -2]]; alpha / rank is 4.
    assert merged["layer.q_proj.weight"].tolist() == [[3.0, 0.0], [11.0, -4.0]]
    assert merged["layer.norm.weight"].tolist() == [5.0, 6.0]
    assert base["layer.q_proj.weight"].tolist() == [[1.0, 2.0], [3.0, 4.0]], "the base stays as it was"


def test_names_go_to_a_file_and_back() -> None:
    trained = {"language.layer.q_proj.lora_A.default.weight": torch.zeros(1)}
    stored = to_file_names(trained, "language")
    assert list(stored) == ["base_model.model.layer.q_proj.lora_A.weight"]
    assert list(from_file_names(stored, "language")) == list(trained)

"""Activations are recomputed where asked for, nothing is ever dropped, and values are exact in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import learner_config
from transformers import GPT2Config, GPT2LMHeadModel

from starpo.learning.loading import _causal_model
from starpo.learning.models import Actor, Critic
from starpo.learning.prefix_tree import prefix_tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.1)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("critic", [False, True])
def test_a_layer_is_computed_twice_with_recomputation_and_gradients_stay(folder: Path, critic: bool) -> None:
    ids = torch.randint(0, 32, (4, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    tree, counts, gradients = prefix_tree(ids, mask), [], []
    for recompute in (False, True):
        model = _causal_model(folder, learner_config(gradient_checkpointing=recompute))
        module = Critic(model.get_decoder(), 32) if critic else Actor(model)
        if isinstance(module, Critic):
            torch.nn.init.ones_(module.head.weight)
        calls: list[int] = []
        attention = model.get_decoder().h[0].attn
        attention.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        out = module(tree, mask)
        (out if critic else out[0]).sum().backward()
        counts.append(len(calls))
        gradients.append({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
        again = module(tree, mask)
        assert torch.equal(again if critic else again[0], out if critic else out[0])
    assert counts == [1, 2]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-5)


def test_the_head_of_a_critic_is_exact_in_bfloat16(folder: Path) -> None:
    critic = Critic(_causal_model(folder, learner_config()).get_decoder(), 32).to(torch.bfloat16)
    hidden = torch.randn(50, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    torch.nn.init.constant_(critic.head.weight, 0.5)
    torch.nn.init.constant_(critic.head.bias, 10)
    expected = hidden.double().sum(1) / 2 + 10
    torch.testing.assert_close(critic.head(hidden)[:, 0].double(), expected, atol=1e-4, rtol=0)

"""The actor's log-probs are transformers' own, whatever an architecture does with windows, scales and caps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from starpo.learning.architecture_check import check_architecture
from starpo.learning.models import Actor
from starpo.learning.prefix_tree import prefix_tree

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "phi3": {"sliding_window": 8},
    "starcoder2": {"sliding_window": 8},
    "granite": {"logits_scaling": 8.0},
    "cohere": {},
    "cohere2": {"sliding_window": 8},
    "gemma2": {"sliding_window": 8, "attn_logit_softcapping": 0.1, "final_logit_softcapping": 0.1},
    "gemma3_text": {"sliding_window": 8},
    "olmo2": {},
    "smollm3": {},
    "gpt_neox": {},
    "phi": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "gpt2": {},
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_log_probs_are_those_of_transformers(kind: str) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES | ARCHITECTURES[kind])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    # Weights of 0.02 give nearly equal logits, in which nothing would show.
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.3)
    ids = torch.randint(3, 64, (4, 24))
    ids[1, :15], ids[2, :6] = ids[0, :15], ids[0, :6]
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, 3:] = True
    mask[1, 17:] = mask[3, 20:] = False
    with torch.no_grad():
        logp = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)[:, :-1]
        expected = logp.gather(-1, ids[:, 1:, None])[..., 0][mask[:, 1:]]
        found, _ = Actor(model)(prefix_tree(ids, mask), mask)
        again, _ = Actor(model)(prefix_tree(ids, mask), mask)
        own = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)[:, :-1]
    torch.testing.assert_close(found[mask], expected, atol=1e-4, rtol=0)
    assert torch.equal(again, found)
    own = own.gather(-1, ids[:, 1:, None])[..., 0][mask[:, 1:]]
    torch.testing.assert_close(own, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("llama", "along the tree of prefixes"),
        ("mistral", "trajectory by trajectory"),
        ("granite", "by transformers' own forward"),
        ("gemma2", "by transformers' own forward"),
    ],
)
def test_models_check_says_how_an_architecture_is_computed_and_how_exactly(name: str, way: str) -> None:
    said = check_architecture(AutoConfig.for_model(name, **SIZES | ARCHITECTURES[name]))
    assert said.startswith(way)
    assert float(said.split("at most ")[1].split()[0]) < 1e-4


def test_models_check_says_so_where_it_cannot_try() -> None:
    assert check_architecture(AutoConfig.for_model("t5")).startswith("not tried: no small model of 't5'")

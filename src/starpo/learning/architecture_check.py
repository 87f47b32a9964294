"""How the learner computes an architecture, tried on a small model of its configuration with random weights."""

from __future__ import annotations

import copy
from typing import Any

import torch

from starpo.learning.models import Actor
from starpo.learning.prefix_tree import prefix_tree

LAYERS, VOCABULARY, WINDOW, LENGTH = 2, 512, 8, 24
"""Of the small model, and of the trajectories it is tried on, which are longer than its window."""


def check_architecture(config: Any) -> str:
    """One sentence: the way of computing, and the largest difference to transformers' own log-probs, nats.

    Args:
        config: a transformers configuration of a causal language model; it is not changed.
    """
    try:
        model = _small_model(config)
    except Exception as error:  # an architecture may insist on anything
        return f"not tried: no small model of {config.model_type!r} can be built ({error})"
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, VOCABULARY, (3, LENGTH), generator=draw)
    tokens[1:, : LENGTH // 2] = tokens[0, : LENGTH // 2]
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 0] = False
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
        expected = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        actor = Actor(model)
        found = actor(prefix_tree(tokens, mask), mask)[0][:, 1:]
    return f"{actor.way}; at most {float((found - expected).abs().max()):.1e} nats off"


def _small_model(config: Any) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    small = copy.deepcopy(config.get_text_config())
    if getattr(small, "layer_types", None):
        # The kinds that the architecture mixes, not just those of its first layers.
        kinds = list(dict.fromkeys(small.layer_types))
        small.layer_types = (kinds * LAYERS)[:LAYERS]
    if getattr(small, "sliding_window", None) is not None:
        small.sliding_window = WINDOW
    small.num_hidden_layers, small.vocab_size = LAYERS, VOCABULARY
    small.bos_token_id = small.eos_token_id = small.pad_token_id = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(small, attn_implementation="eager").float().eval()

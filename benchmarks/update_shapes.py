"""Models with random weights in the shapes that are measured; a step's time does not depend on the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: The embedded default policy, SmolLM2-135M and Qwen2.5-0.5B.
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 362,
        "hidden_size": 96,
        "intermediate_size": 288,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "tie_word_embeddings": False,
    },
    "smollm2": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    "qwen": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
}

CONTEXT = 32768


def vocabulary(model: str) -> int:
    """Size of the vocabulary of a shape or of a model directory."""
    if model in SHAPES:
        return int(SHAPES[model]["vocab_size"])
    return int(json.loads((Path(model) / "config.json").read_text())["vocab_size"])


def load_model(model: str) -> Any:
    """A float32 causal language model with scaled-dot-product attention: of a shape, or from a directory."""
    # Not needed to talk to the contenders, and slow to import.
    import torch  # noqa: PLC0415
    from transformers import (  # noqa: PLC0415
        AutoModelForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    if model not in SHAPES:
        return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
    settings = SHAPES[model] | {"max_position_embeddings": CONTEXT, "attn_implementation": "sdpa"}
    torch.manual_seed(0)
    if model == "qwen":
        return Qwen2ForCausalLM(Qwen2Config(**settings))
    return LlamaForCausalLM(LlamaConfig(**settings))

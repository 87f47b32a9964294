"""Sizes of a model, counted from its configuration without weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starpo.config.learner import LoraConfig


@dataclass(frozen=True)
class ModelShape:
    """What memory depends on."""

    parameters: int
    """All weights; tied ones once."""
    head: int
    """Weights of the output head that are not also the embedding's; a critic has none of them."""
    linear: dict[str, tuple[int, int]]
    """Linear layers but the head by name: (inputs, outputs)."""
    hidden: int
    """Width between the layers."""
    layers: int
    """Transformer layers."""
    key_value: int
    """Numbers that a token leaves in the KV cache, per layer: keys and values of all key heads."""
    vocabulary: int
    """Size of the output distribution."""

    @classmethod
    def of(cls, config: Any) -> ModelShape:
        """Build the model of a transformers configuration on the meta device, where weights take no memory."""
        import torch  # noqa: PLC0415
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        head = model.get_output_embeddings()
        text = config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        tied = head.weight is model.get_input_embeddings().weight or bool(text.tie_word_embeddings)
        return cls(
            parameters=sum(weight.numel() for weight in model.parameters())
            - (head.weight.numel() if tied and head.weight is not model.get_input_embeddings().weight else 0),
            head=0 if tied else head.weight.numel(),
            linear={
                name: (module.in_features, module.out_features)
                for name, module in model.named_modules()
                if isinstance(module, torch.nn.Linear) and module is not head
            },
            hidden=int(text.hidden_size),
            layers=int(text.num_hidden_layers),
            key_value=2 * heads * width,
            vocabulary=int(text.vocab_size),
        )

    def adapter(self, lora: LoraConfig) -> int:
        """Weights of adapters on its layers."""
        wanted = lora.target_modules
        return sum(
            lora.rank * sum(sizes)
            for name, sizes in self.linear.items()
            if wanted == "all-linear" or any(name == end or name.endswith(f".{end}") for end in wanted)
        )

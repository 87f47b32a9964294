"""Actor and critic as modules whose forward already returns what the losses need.

Log-probs are computed inside the wrapped forward, so that they hold under ZeRO-3 (parameters are gathered only
there) and logits exist only where a sampled token is predicted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from starpo.algorithms.entropy import token_distribution


def _hidden_before_sampled(decoder: nn.Module, input_ids: Tensor, mask: Tensor) -> Tensor:
    """Hidden states [n, H] from which the ``n`` sampled tokens (True in ``mask``) are predicted.

    Rows are padded on the right: under causal attention no real token sees the padding, so no attention mask
    is needed. The first column is always context.
    """
    hidden = decoder(input_ids=input_ids, use_cache=False).last_hidden_state
    return hidden[:, :-1][mask[:, 1:]]


class Actor(nn.Module):
    """A causal language model that returns log-probs and entropies of the sampled tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, mask: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """``input_ids`` int64 [B, T], ``mask`` bool [B, T]; log-probs and entropies, float32 [B, T], nats, else 0."""
        hidden = _hidden_before_sampled(self.model.get_decoder(), input_ids, mask)
        logits = self.model.get_output_embeddings()(hidden)
        chosen = token_distribution(logits, input_ids[mask], temperature=temperature)
        return _spread(chosen.logp, mask), _spread(chosen.entropy, mask)


class Critic(nn.Module):
    """A transformer with a scalar head: the value of the state before each sampled token."""

    def __init__(self, decoder: Any, width: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.head = nn.Linear(width, 1)
        # Starts at 0 everywhere: an untrained critic must not add noise to the first advantages.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Values, float32 [B, T], in units of the return, 0 outside ``mask``."""
        hidden = _hidden_before_sampled(self.decoder, input_ids, mask)
        return _spread(self.head(hidden)[:, 0].float(), mask)


def _spread(flat: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=flat.dtype, device=flat.device).masked_scatter(mask, flat)

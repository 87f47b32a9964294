"""Actor and critic as modules whose forward already returns what the losses need.

Log-probs are computed inside the wrapped forward, so that they hold under ZeRO-3 (parameters are gathered only
there), and logits exist only where a sampled token is predicted. Both return rows of trajectories padded on the
right and compute on the tree of their prefixes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from starpo.algorithms.entropy import TokenDistribution, token_distribution
from starpo.learning.own_logits import head_is_all, own_logits
from starpo.learning.prefix_tree import PrefixTree
from starpo.learning.tree_attention import attend_along_tree, hidden_states

MAX_LOGITS = 1 << 26
"""Logits that exist at one time, 256 MiB in float32. Where a batch has more, they come in chunks that are computed
again in the backward pass: of Qwen's 151,936 tokens of vocabulary the logits of 441 sampled tokens are one chunk."""


class Actor(nn.Module):
    """A causal language model that returns log-probs and entropies of the sampled tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._head_is_all = head_is_all(model)
        self._along_tree = attend_along_tree(model.get_decoder(), allowed=self._head_is_all)

    @property
    def way(self) -> str:
        """How the architecture is computed, for people."""
        if not self._head_is_all:
            return "by transformers' own forward, trajectory by trajectory"
        return "along the tree of prefixes" if self._along_tree else "trajectory by trajectory"

    def forward(self, tree: PrefixTree, mask: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies, float32 [B, T], nats, 0 outside ``mask``, bool [B, T], from which ``tree`` is."""
        if not self._head_is_all:
            logits = own_logits(self.model, tree)
            chosen = token_distribution(logits, tree.labels, temperature=temperature)
            return _spread(chosen.logp[tree.place], mask), _spread(chosen.entropy[tree.place], mask)
        hidden = hidden_states(self.model.get_decoder(), tree, along_tree=self._along_tree)[tree.before]
        head = self.model.get_output_embeddings()
        step = max(1, MAX_LOGITS // self.model.config.vocab_size)
        if len(hidden) <= step:
            chosen = _distribution(head, hidden, tree.labels, temperature)
        else:
            parts = [
                checkpoint(_distribution, head, some, labels, temperature, use_reentrant=False)
                for some, labels in zip(hidden.split(step), tree.labels.split(step), strict=True)
            ]
            chosen = TokenDistribution(*(torch.cat(values) for values in zip(*parts, strict=True)))
        return _spread(chosen.logp[tree.place], mask), _spread(chosen.entropy[tree.place], mask)


def _distribution(head: nn.Module, hidden: Tensor, labels: Tensor, temperature: float) -> TokenDistribution:
    return token_distribution(head(hidden), labels, temperature=temperature)


class _ValueHead(nn.Linear):
    """Linear in float32 whatever its weights are: neighbours in bfloat16 near 10 are 0.06 apart."""

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden.float(), self.weight.float(), self.bias.float())


class Critic(nn.Module):
    """A transformer with a scalar head: the value of the state before each sampled token."""

    def __init__(self, decoder: Any, width: int) -> None:
        super().__init__()
        self.decoder = decoder
        self._along_tree = attend_along_tree(decoder)
        self.head = _ValueHead(width, 1)
        # Starts at 0 everywhere: an untrained critic must not add noise to the first advantages.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tree: PrefixTree, mask: Tensor) -> Tensor:
        """Values, float32 [B, T], in units of the return, 0 outside ``mask``, bool [B, T], from which ``tree`` is."""
        hidden = hidden_states(self.decoder, tree, along_tree=self._along_tree)[tree.before]
        return _spread(self.head(hidden)[:, 0][tree.place], mask)


def _spread(flat: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=flat.dtype, device=flat.device).masked_scatter(mask, flat)

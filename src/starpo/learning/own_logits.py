"""Logits by a model's own forward, for architectures that scale or cap what their output head gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from starpo.learning.prefix_tree import PrefixTree


def head_is_all(model: Any) -> bool:
    """Whether the model's logits are exactly what its output head gives, tried on a few tokens."""
    seen: list[Tensor] = []
    head = model.get_output_embeddings()
    hook = head.register_forward_hook(lambda _module, _inputs, out: seen.append(out.detach().clone()))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            tokens = torch.arange(min(8, head.weight.shape[0]), device=head.weight.device)[None]
            logits = model(input_ids=tokens, use_cache=False).logits
    finally:
        hook.remove()
        for module, mode in modes.items():
            module.training = mode
    return len(seen) == 1 and torch.equal(seen[0].to(logits.dtype), logits)


def own_logits(model: Any, tree: PrefixTree) -> Tensor:
    """Logits [S, V] of the tokens before the sampled ones, trajectory by trajectory.

    Rows are padded on the right, which causal attention does not see.
    """
    rows = [
        model(input_ids=tree.tokens[0, bucket], use_cache=False).logits.flatten(0, 1)
        for bucket in tree.buckets
    ]
    return torch.cat(rows)[tree.first[tree.before]]

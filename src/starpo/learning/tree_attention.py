"""Attention over a tree of tokens, as an attention implementation of transformers.

Everything in a transformer but attention treats tokens one by one. Attention alone needs the trajectories: here
their queries, keys and values are taken from the nodes of a :class:`~starpo.learning.prefix_tree.PrefixTree`, run
through transformers' own scaled-dot-product attention as causal rows, and each node's output is taken from a
trajectory that goes through it. Written for transformers 5.19.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from starpo.learning.prefix_tree import PrefixTree

NAME = "starpo_tree"


def attend_along_tree(decoder: Any, *, allowed: bool = True) -> bool:
    """Switch a decoder's attention over; False where its architecture cannot or it is not ``allowed``.

    It can where all layers attend to the whole past through transformers' attention interface, as its scaled
    dot-product attention does; that leaves a soft cap on scores out, so such a decoder is set to the eager one.
    """
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415

    if getattr(decoder.config, "attn_logit_softcapping", None) is not None:
        decoder.set_attn_implementation("eager")
        return False
    able = decoder._supports_attention_backend and decoder._supports_sdpa
    if not allowed or not able or _windowed(decoder.config):
        return False
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _no_mask)
    decoder.set_attn_implementation(NAME)
    return True


def _windowed(config: Any) -> bool:
    """Whether a layer sees less than the whole past, however long the trajectories will be."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) != {"full_attention"}
    active = getattr(config, "use_sliding_window", True)
    return bool(active) and getattr(config, "sliding_window", None) is not None


def hidden_states(decoder: nn.Module, tree: PrefixTree, *, along_tree: bool) -> Tensor:
    """Hidden states [U, H] of the nodes; trajectory by trajectory where the decoder cannot go along the tree."""
    if along_tree:
        out = decoder(input_ids=tree.tokens, position_ids=tree.positions, use_cache=False, tree=tree)
        return out.last_hidden_state[0]
    rows = [
        decoder(input_ids=tree.tokens[0, bucket], use_cache=False).last_hidden_state.flatten(0, 1)
        for bucket in tree.buckets
    ]
    return torch.cat(rows)[tree.first]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    tree: PrefixTree | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """``query`` [1, heads, U, D], ``key`` and ``value`` [1, key heads, U, D]; the output is [1, U, heads, D].

    Without a tree, as in the model's own forward, rows are causal and whole.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

    if tree is None:
        return sdpa_attention_forward(module, query, key, value, None, **options | {"is_causal": True})
    # One gather for all buckets: each has a backward pass that fills a tensor of all nodes.
    along = torch.cat([bucket.flatten() for bucket in tree.buckets])
    sizes = [bucket.numel() for bucket in tree.buckets]
    rows = (tensor[0].transpose(0, 1).index_select(0, along).split(sizes) for tensor in (query, key, value))
    outputs = []
    for bucket, *parts in zip(tree.buckets, *rows, strict=True):
        q, k, v = (part.unflatten(0, bucket.shape).transpose(1, 2) for part in parts)
        out, _ = sdpa_attention_forward(module, q, k, v, None, **options | {"is_causal": True})
        outputs.append(out.flatten(0, 1))
    return torch.cat(outputs).index_select(0, tree.first)[None], None


def _no_mask(**_: Any) -> None:
    """Trajectories are rows padded on the right: causality is mask enough."""

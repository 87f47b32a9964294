"""The ablation without a response mask: context tokens are trained as if the policy had written them."""

from __future__ import annotations

import dataclasses

import torch

from starpo.learning.batching import Sequences


def with_context_tokens(batch: Sequences) -> Sequences:
    """``batch`` with a loss mask over every token but a chain's first, which nothing predicts.

    What a window repeats is context, and trained as such. A context token belongs to the turn that it leads to, so
    a turn's reward still falls on its last sampled token.
    ``old_logp`` of context tokens is 0, for the engine gave none: it must be computed anew.

    Example: context c and sampled s as ``c c s s c s`` get the mask ``0 1 1 1 1 1`` and turns ``0 0 0 0 1 1``.
    """
    columns = torch.arange(batch.mask.shape[1])
    real = columns < torch.from_numpy(batch.lengths)[:, None]
    predicted = torch.ones_like(real)
    for row, starts in enumerate(batch.starts):
        predicted[row, starts] = False
    # Turns never decrease along a row, so the turn of the next sampled token is the least of those to come.
    beyond = batch.turn_mask.shape[1]
    following = torch.where(batch.mask, batch.turn_index, beyond).flip(1).cummin(dim=1).values.flip(1)
    return dataclasses.replace(
        batch, mask=real & predicted, turn_index=torch.where(real, following.clamp(max=beyond - 1), 0)
    )

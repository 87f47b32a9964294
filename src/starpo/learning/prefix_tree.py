"""Trajectories as a tree of tokens: what several of them begin with is computed once.

Under causal attention a hidden state depends on the tokens up to it and on nothing else. Members of a group share
the prompt, all groups of a task the system message, and members that answered alike share whole turns. So the
network's per-token work runs on the tree's nodes, without padding and without repetition; the trajectories are put
together again for attention only (:mod:`starpo.learning.tree_attention`). Losses and gradients are those of the
separate trajectories, up to rounding.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MAX_PADDING = 0.05
"""Largest share of padding among the positions that attention computes."""


@dataclass(frozen=True)
class PrefixTree:
    """U distinct prefixes of N trajectories, of which S end with a sampled token.

    Example: the trajectories ``a b C`` and ``a b D E`` (capitals are sampled) have the nodes ``a, b, D`` (C and
    E predict nothing), the sampled tokens ``C, D, E`` and before them the nodes ``1, 1, 2``.
    """

    tokens: Tensor
    """int64 [1, U], last token of each prefix."""
    positions: Tensor
    """int64 [1, U], its place in every trajectory that begins so."""
    buckets: tuple[Tensor, ...]
    """int64 [n, w] each: the nodes along trajectories of similar length, one a row, node 0 in the padding."""
    first: Tensor
    """int64 [U]: where each node occurs first in the flattened, concatenated buckets."""
    before: Tensor
    """int64 [S]: the node from which each sampled token is predicted."""
    labels: Tensor
    """int64 [S]: the sampled tokens."""
    place: Tensor
    """int64 [M]: for each True of the mask in row-major order, the sampled token (0 to S - 1) that stands there."""
    chained: int
    """Tokens of all trajectories, each as far as needed."""

    @property
    def computed(self) -> int:
        """Positions that attention computes, padding included."""
        return sum(bucket.numel() for bucket in self.buckets)

    def to(self, device: torch.device) -> PrefixTree:
        """The same on ``device``."""
        names = ("tokens", "positions", "first", "before", "labels", "place")
        return dataclasses.replace(
            self,
            buckets=tuple(bucket.to(device) for bucket in self.buckets),
            **{name: getattr(self, name).to(device) for name in names},
        )


def prefix_tree(token_ids: Tensor, mask: Tensor) -> PrefixTree:
    """The tree of the rows of ``token_ids``, int64 [N, T], as far as the sampled tokens, True in ``mask``, need it.

    Rows are padded on the right; what follows a row's last sampled token is left out, and so is that token, which
    predicts nothing.

    Raises:
        ValueError: a row's first token is sampled, so that nothing predicts it.
    """
    ids, sampled = token_ids.cpu().numpy(), mask.cpu().numpy()
    if sampled[:, 0].any():
        raise ValueError("the first token of a trajectory cannot be sampled: nothing precedes it")
    # Where nothing is sampled one node stays, so that the network can run: every rank must, under ZeRO.
    lengths = np.where(sampled.any(1), sampled.shape[1] - 1 - sampled[:, ::-1].argmax(1), 1)
    nodes, tokens, positions, origin = _grow(ids, lengths)
    rows, columns = np.nonzero(sampled)
    # Equal (node before, token) pairs are one sampled token.
    pairs = nodes[rows, columns - 1] * (ids.max(initial=0) + 1) + ids[rows, columns]
    _, chosen, place = np.unique(pairs, return_index=True, return_inverse=True)
    buckets, flat = [], np.zeros(nodes.shape, dtype=np.int64)
    at = 0
    for part in _buckets(np.argsort(lengths, kind="stable"), lengths):
        width = lengths[part].max()
        buckets.append(torch.from_numpy(np.ascontiguousarray(nodes[part, :width])))
        flat[part, :width] = at + np.arange(len(part) * width).reshape(len(part), width)
        at += len(part) * width
    return PrefixTree(
        torch.from_numpy(tokens)[None],
        torch.from_numpy(positions)[None],
        tuple(buckets),
        torch.from_numpy(flat[origin, positions]),
        torch.from_numpy(nodes[rows, columns - 1][chosen]),
        torch.from_numpy(ids[rows, columns][chosen]),
        torch.from_numpy(place.reshape(-1)),
        chained=int(lengths.sum()),
    )


def _grow(ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Node of every position [N, T] (0 beyond a row's length), and token, position and a row of every node [U]."""
    nodes = np.zeros(ids.shape, dtype=np.int64)
    tokens, positions, origin = [], [], []
    count = 0
    previous: int | None = None
    # Sorted as byte strings, so the row that shares most with any earlier one stands right before it.
    for row in sorted(range(len(ids)), key=lambda r: ids[r, : lengths[r]].astype(">i8").tobytes()):
        length = lengths[row]
        shared = 0
        if previous is not None:
            both = min(length, lengths[previous])
            differs = ids[row, :both] != ids[previous, :both]
            shared = int(differs.argmax()) if differs.any() else int(both)
            nodes[row, :shared] = nodes[previous, :shared]
        fresh = length - shared
        nodes[row, shared:length] = count + np.arange(fresh)
        tokens.append(ids[row, shared:length])
        positions.append(np.arange(shared, length))
        origin.append(np.full(fresh, row))
        count += fresh
        previous = row
    of_tokens, of_positions, of_origin = (
        np.concatenate(parts).astype(np.int64) for parts in (tokens, positions, origin)
    )
    return nodes, of_tokens, of_positions, of_origin


def _buckets(ordered: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Cut rows sorted by length into the fewest parts whose padding is at most ``MAX_PADDING``."""
    sizes = lengths[ordered]
    total = sizes.sum()
    cost = np.full(len(ordered) + 1, np.inf)
    cost[0] = 0
    cuts: list[np.ndarray] = []
    while cost[-1] > total / (1 - MAX_PADDING):
        # cost[j]: fewest positions for the first j rows in len(cuts) parts.
        counts = np.arange(len(ordered) + 1)
        table = cost[:, None] + np.where(
            counts[None] > counts[:, None],
            (counts[None] - counts[:, None]) * np.concatenate([[0], sizes])[None],
            np.inf,
        )
        cuts.append(table.argmin(0))
        cost = table.min(0)
    parts, end = [], len(ordered)
    for cut in reversed(cuts):
        parts.append(ordered[cut[end] : end])
        end = cut[end]
    return parts[::-1]

"""From the turns table to batches: trajectories, mini-batches, micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """N trajectories padded on the right to T columns; column t is about token t.

    A row is its trajectory's chains one after the other. Estimators and losses see the row, for they look at sampled
    tokens alone; a network sees each chain by itself, see :func:`chain_rows`.
    """

    keys: list[tuple[int, int]]
    """(group, member) of each row."""
    token_ids: Tensor
    """int64 [N, T], 0 in the padding."""
    lengths: np.ndarray
    """int64 [N]."""
    mask: Tensor
    """bool [N, T], True on sampled tokens: the loss mask."""
    old_logp: Tensor
    """float32 [N, T], the engine's log-probs, 0 outside the mask."""
    turn_index: Tensor
    """int64 [N, T], turn of each sampled token."""
    turn_rewards: Tensor
    """float64 [N, K]: in float32 equal returns, split over turns in different ways, would differ by rounding."""
    turn_mask: Tensor
    """bool [N, K]."""
    group_ids: Tensor
    """int64 [N]."""
    anchors: Tensor
    """int64 [N, K], equal where turns of a group started from the same observation."""
    environments: list[str]
    """[N], name of each trajectory's environment."""
    starts: list[list[int]]
    """[N], columns at which each row's chains begin, rising from 0; a single one without windows."""

    @property
    def returns(self) -> Tensor:
        """float64 [N]: undiscounted sum of the turn rewards."""
        return (self.turn_rewards * self.turn_mask).sum(1)

    def chains(self, row: int) -> list[tuple[int, int]]:
        """First column of each chain of a row, and the one after its last."""
        return list(zip(self.starts[row], [*self.starts[row][1:], int(self.lengths[row])], strict=True))


def sequences_of(
    turns: pa.Table, turn_rewards: dict[tuple[int, int], Sequence[float]], kept: set[tuple[int, int]]
) -> Sequences:
    """Chains of the kept trajectories, exactly the ids the engine saw and sampled.

    ``turn_rewards`` maps (group, member) to its scored reward per turn; rows of ``turns`` are in order.
    """
    chains: dict[tuple[int, int], list[tuple[list[int], list[int], list[float], int, bool]]] = {}
    columns = (
        "group",
        "member",
        "context_ids",
        "response_ids",
        "response_logprobs",
        "observation",
        "environment",
    )
    windowed = "chain_start" in turns.column_names
    restarts = turns["chain_start"].to_pylist() if windowed else [False] * turns.num_rows
    played: dict[tuple[int, int], str] = {}
    anchor_of: dict[tuple[int, str], int] = {}
    for group, member, context, response, logprobs, observation, environment, start in zip(
        *(turns[name].to_pylist() for name in columns), restarts, strict=True
    ):
        if (group, member) in kept:
            anchor = anchor_of.setdefault((group, observation), len(anchor_of))
            played[group, member] = environment
            chains.setdefault((group, member), []).append((context, response, logprobs, anchor, start))
    keys = sorted(chains)
    lengths = np.array([sum(len(c) + len(r) for c, r, *_ in chains[key]) for key in keys], dtype=np.int64)
    width, most_turns = int(lengths.max()), max(len(chains[key]) for key in keys)
    ids = np.zeros((len(keys), width), dtype=np.int64)
    mask = np.zeros((len(keys), width), dtype=bool)
    logp = np.zeros((len(keys), width), dtype=np.float32)
    turn_index = np.zeros((len(keys), width), dtype=np.int64)
    rewards = np.zeros((len(keys), most_turns), dtype=np.float64)
    turn_mask = np.zeros((len(keys), most_turns), dtype=bool)
    anchors = np.zeros((len(keys), most_turns), dtype=np.int64)
    starts: list[list[int]] = [[0] for _ in keys]
    for row, key in enumerate(keys):
        at = 0
        for number, (context, response, logprobs, anchor, start) in enumerate(chains[key]):
            anchors[row, number] = anchor
            if start:
                starts[row].append(at)
            ids[row, at : at + len(context)] = context
            at += len(context)
            span = slice(at, at + len(response))
            ids[row, span], mask[row, span], logp[row, span] = response, True, logprobs
            turn_index[row, span] = number
            at += len(response)
        count = len(chains[key])
        rewards[row, :count], turn_mask[row, :count] = turn_rewards[key], True
    return Sequences(
        keys,
        torch.from_numpy(ids),
        lengths,
        torch.from_numpy(mask),
        torch.from_numpy(logp),
        torch.from_numpy(turn_index),
        torch.from_numpy(rewards),
        torch.from_numpy(turn_mask),
        torch.tensor([group for group, _ in keys], dtype=torch.int64),
        torch.from_numpy(anchors),
        [played[key] for key in keys],
        starts,
    )


def mini_batches(rows: int, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """A random partition of ``rows`` row numbers into parts of ``size``, the last one of what is left over.

    Example: 10 rows in parts of 4 give parts of 4, 4 and 2.
    """
    order = generator.permutation(rows)
    return [order[start : start + size] for start in range(0, rows, size)]


def micro_batches(rows: np.ndarray, lengths: np.ndarray, token_budget: int) -> Iterator[np.ndarray]:
    """Split ``rows`` in the table's order into parts whose lengths sum up to at most ``token_budget``.

    So the members of a group, which begin alike, stay together. A row longer than the budget comes alone.
    """
    ordered = np.sort(rows)
    start, tokens = 0, 0
    for at, row in enumerate(ordered):
        if tokens and tokens + lengths[row] > token_budget:
            yield ordered[start:at]
            start, tokens = at, 0
        tokens += lengths[row]
    if len(ordered):
        yield ordered[start:]


@dataclass(frozen=True)
class Piece:
    """What one forward and backward pass computes: whole trajectories, or some chains of one."""

    rows: np.ndarray
    """int64 [B], trajectories."""
    columns: slice
    """Their columns, up to the longest."""


def pieces(batch: Sequences, rows: np.ndarray, token_budget: int, *, divide: bool) -> Iterator[Piece]:
    """The micro-batches of ``rows``, where ``divide`` with trajectories beyond the budget cut between chains.

    What is left over the budget is one chain or, undivided, one trajectory.
    """
    for part in micro_batches(rows, batch.lengths, token_budget):
        longest = int(batch.lengths[part].max())
        if divide and longest > token_budget and len(part) == 1:
            spans = batch.chains(int(part[0]))
            sizes = np.array([end - begin for begin, end in spans])
            for some in micro_batches(np.arange(len(spans)), sizes, token_budget):
                yield Piece(part, slice(spans[some[0]][0], spans[some[-1]][1]))
        else:
            yield Piece(part, slice(0, longest))


def chain_rows(batch: Sequences, piece: Piece) -> tuple[Tensor, Tensor]:
    """Token ids, int64 [C, W], and mask, bool [C, W], of the chains of a piece, a row each, in the order of the rows.

    So the True entries of this mask, read row by row, are those of the piece's own mask [B, columns].
    """
    ids, mask = batch.token_ids[piece.rows, piece.columns], batch.mask[piece.rows, piece.columns]
    if all(len(batch.starts[row]) == 1 for row in piece.rows):
        return ids, mask
    first, last = piece.columns.start, piece.columns.stop
    spans = [
        (at, begin - first, end - first)
        for at, row in enumerate(piece.rows)
        for begin, end in batch.chains(row)
        if first <= begin and end <= last
    ]
    width = max(end - begin for _, begin, end in spans)
    cut_ids = torch.zeros(len(spans), width, dtype=ids.dtype)
    cut_mask = torch.zeros(len(spans), width, dtype=torch.bool)
    for chain, (at, begin, end) in enumerate(spans):
        cut_ids[chain, : end - begin] = ids[at, begin:end]
        cut_mask[chain, : end - begin] = mask[at, begin:end]
    return cut_ids, cut_mask

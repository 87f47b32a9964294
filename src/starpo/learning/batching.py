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
    """N trajectories padded on the right to T columns; column t is about token t."""

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
    """float32 [N, K]."""
    turn_mask: Tensor
    """bool [N, K]."""
    group_ids: Tensor
    """int64 [N]."""
    anchors: Tensor
    """int64 [N, K], equal where turns of a group started from the same observation."""
    environments: list[str]
    """[N], name of each trajectory's environment."""

    @property
    def returns(self) -> Tensor:
        """float32 [N]: undiscounted sum of the turn rewards."""
        return (self.turn_rewards * self.turn_mask).sum(1)


def sequences_of(
    turns: pa.Table, turn_rewards: dict[tuple[int, int], Sequence[float]], kept: set[tuple[int, int]]
) -> Sequences:
    """Chains of the kept trajectories, exactly the ids the engine saw and sampled.

    ``turn_rewards`` maps (group, member) to its scored reward per turn; rows of ``turns`` are in order.
    """
    chains: dict[tuple[int, int], list[tuple[list[int], list[int], list[float], int]]] = {}
    columns = (
        "group",
        "member",
        "context_ids",
        "response_ids",
        "response_logprobs",
        "observation",
        "environment",
    )
    played: dict[tuple[int, int], str] = {}
    anchor_of: dict[tuple[int, str], int] = {}
    for group, member, context, response, logprobs, observation, environment in zip(
        *(turns[name].to_pylist() for name in columns), strict=True
    ):
        if (group, member) in kept:
            anchor = anchor_of.setdefault((group, observation), len(anchor_of))
            played[group, member] = environment
            chains.setdefault((group, member), []).append((context, response, logprobs, anchor))
    keys = sorted(chains)
    lengths = np.array([sum(len(c) + len(r) for c, r, *_ in chains[key]) for key in keys], dtype=np.int64)
    width, most_turns = int(lengths.max()), max(len(chains[key]) for key in keys)
    ids = np.zeros((len(keys), width), dtype=np.int64)
    mask = np.zeros((len(keys), width), dtype=bool)
    logp = np.zeros((len(keys), width), dtype=np.float32)
    turn_index = np.zeros((len(keys), width), dtype=np.int64)
    rewards = np.zeros((len(keys), most_turns), dtype=np.float32)
    turn_mask = np.zeros((len(keys), most_turns), dtype=bool)
    anchors = np.zeros((len(keys), most_turns), dtype=np.int64)
    for row, key in enumerate(keys):
        at = 0
        for number, (context, response, logprobs, anchor) in enumerate(chains[key]):
            anchors[row, number] = anchor
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
    )


def mini_batches(rows: int, count: int, generator: np.random.Generator) -> list[np.ndarray]:
    """A random partition of ``rows`` row numbers into ``count`` parts whose sizes differ by at most one."""
    return [part for part in np.array_split(generator.permutation(rows), count) if len(part)]


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

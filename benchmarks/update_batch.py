"""The ragged multi-turn batch that all contenders of ``update.py`` get, from a seed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

MOST_TURNS = 5
#: Mean parts of a trajectory: system message, first observation, later context and response of one turn. With 3
#: turns on average they add up to 1; 18 % of the tokens are sampled, as in multi-turn games with short answers.
SYSTEM, OBSERVATION, CONTEXT, RESPONSE = 0.3, 0.12, 0.2, 0.06


@dataclass(frozen=True)
class RaggedBatch:
    """N trajectories padded on the right to T columns."""

    token_ids: np.ndarray
    """int64 [N, T]."""
    mask: np.ndarray
    """bool [N, T], sampled tokens."""
    turn_index: np.ndarray
    """int64 [N, T], turn of each sampled token."""
    lengths: np.ndarray
    """int64 [N]."""
    prompt_lengths: np.ndarray
    """int64 [N], tokens before the first sampled one."""
    turns: np.ndarray
    """int64 [N]."""
    groups: np.ndarray
    """int64 [N]."""
    rewards: np.ndarray
    """float32 [N], of the last turn."""
    old_logp: np.ndarray
    """float32 [N, T], near those of a random network, 0 outside the mask."""

    def save(self, path: Path) -> None:
        """As an npz file, which needs no library of ours to be read."""
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> RaggedBatch:
        """The inverse of :meth:`save`."""
        with np.load(path) as stored:
            return cls(**{field.name: stored[field.name] for field in fields(cls)})


def ragged_batch(
    seed: int, *, groups: int, members: int, length: int, vocabulary: int, shared: bool
) -> RaggedBatch:
    """``groups`` prompts with ``members`` trajectories of 1 to 5 turns and ``length`` tokens on average.

    ``shared``: all begin with one system message and members with one observation, as in training; else nothing is
    common to any two trajectories.
    """
    draw = np.random.default_rng(seed)

    def tokens(mean: float) -> list[int]:
        return draw.integers(0, vocabulary, max(1, round(mean * length * draw.uniform(0.5, 1.5)))).tolist()

    system, chains = tokens(SYSTEM), []
    for _ in range(groups):
        observation = tokens(OBSERVATION)
        for _ in range(members):
            prompt = system + observation
            if not shared:
                prompt = draw.integers(0, vocabulary, len(prompt)).tolist()
            chain, numbers = list(prompt), [-1] * len(prompt)
            for turn in range(int(draw.integers(1, MOST_TURNS + 1))):
                context = tokens(CONTEXT) if turn else []
                response = tokens(RESPONSE)
                chain += context + response
                numbers += [-1] * len(context) + [turn] * len(response)
            chains.append((chain, numbers, len(prompt)))
    lengths = np.array([len(chain) for chain, _, _ in chains])
    ids = np.zeros((len(chains), lengths.max()), dtype=np.int64)
    turn_index = np.full(ids.shape, -1, dtype=np.int64)
    for row, (chain, numbers, _) in enumerate(chains):
        ids[row, : len(chain)], turn_index[row, : len(chain)] = chain, numbers
    mask = turn_index >= 0
    old = np.where(mask, -np.log(vocabulary) + draw.normal(0, 0.1, ids.shape), 0).astype(np.float32)
    return RaggedBatch(
        token_ids=ids,
        mask=mask,
        turn_index=np.maximum(turn_index, 0),
        lengths=lengths,
        prompt_lengths=np.array([prompt for _, _, prompt in chains]),
        turns=turn_index.max(1) + 1,
        groups=np.repeat(np.arange(groups), members),
        rewards=draw.random(len(chains)).astype(np.float32),
        old_logp=old,
    )

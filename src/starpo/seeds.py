"""Every random draw of a run, keyed by what it is for and never by when it happens.

A draw's seed is a function of (run seed, purpose, suite or split, iteration, group, round, attempt, member,
turn). Two processes that ask for the same key get the same bits, whatever the order, the number of workers or
``PYTHONHASHSEED``. Members of a group share the *instance* key (member 0) and nothing else.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a random draw decides; distinct purposes never share a stream."""

    INSTANCE = 1  # which task: map, room, arm names
    DYNAMICS = 2  # slips, payouts
    SAMPLING = 3  # the policy's tokens, per turn
    WEIGHTS = 4  # initial weights
    DEMONSTRATION = 5  # the warm start's demonstrations
    SHUFFLE = 6  # order of mini-batches
    MIXTURE = 8  # which environment each group of an iteration plays
    FILTER = 9  # which groups a random filter keeps


@dataclass(frozen=True)
class SeedKey:
    """One draw's address. ``stream`` is the name of a suite or split; it enters by CRC-32, not ``hash()``."""

    run_seed: int
    purpose: Purpose
    stream: str = ""
    iteration: int = 0
    group: int = 0
    round: int = 0
    attempt: int = 0
    member: int = 0
    turn: int = 0

    def sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(
            [
                self.run_seed,
                int(self.purpose),
                zlib.crc32(self.stream.encode()),
                self.iteration,
                self.group,
                self.round,
                self.attempt,
                self.member,
                self.turn,
            ]
        )

    def generator(self) -> np.random.Generator:
        """A fresh PCG64 generator for this key."""
        return np.random.Generator(np.random.PCG64(self.sequence()))

    def integer(self) -> int:
        """A 63-bit non-negative seed for libraries that take one integer."""
        return int(self.sequence().generate_state(1, np.uint64)[0] >> np.uint64(1))

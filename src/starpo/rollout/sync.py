"""Proof that two holders of a policy hold the same weights: equal log-probs on the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class SyncError(RuntimeError):
    """Engine and learner disagree: training on would be silently wrong."""


class Scorer(Protocol):
    """An engine or a learner."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs of every token after the first."""


def largest_difference(one: Scorer, other: Scorer, probe: Sequence[Sequence[int]]) -> float:
    """Largest |log-prob difference| over all probe tokens, nats; NaN if any log-prob is."""
    pairs = zip(one.score(probe), other.score(probe), strict=True)
    # numpy's max passes NaN on wherever it stands; Python's drops it.
    return float(np.max([abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True)]))


def prove_sync(engine: Scorer, reference: Scorer, probe: Sequence[Sequence[int]], tolerance: float) -> float:
    """Largest difference on the probe. Raises ``SyncError`` above ``tolerance``."""
    difference = largest_difference(engine, reference, probe)
    if not difference <= tolerance:
        raise SyncError(
            f"after the weight sync the engine's log-probs differ from the learner's by {difference:.3g} nats "
            f"(engine.sync_tolerance = {tolerance:g}): the engine does not serve the new weights. "
            "With bfloat16 raise the tolerance; otherwise this is a defect of the engine's reload"
        )
    return difference

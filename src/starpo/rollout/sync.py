"""Proof that two holders of a policy hold the same weights.

Two proofs, each with what the other lacks: the weights themselves show an update of any size, but only tensor by
tensor; equal log-probs on the same tokens show that the whole computes the same, but only up to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import torch

from starpo.rollout.engine import Held

logger = logging.getLogger(__name__)

#: Tensors already reported as not compared: a warning at every sync would only be noise.
_reported: set[tuple[str, ...]] = set()


class SyncError(RuntimeError):
    """Engine and learner disagree: training on would be silently wrong."""


class Scorer(Protocol):
    """An engine or a learner."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs of every token after the first."""


class Holder(Protocol):
    """An engine."""

    def held(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Held:
        """What it holds against ``weights``."""


def prove_weights(engine: Holder, sent: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises ``SyncError`` if the engine holds other weights than were ``sent``.

    Tensors that cannot be compared are counted and named in one warning; for those the log-probs stand alone.
    """
    held = engine.held(sent)
    if held.differing:
        raise SyncError(
            f"after the weight sync {len(held.differing)} tensors in the engine differ from the learner's, "
            f"the first is {held.differing[0]}: the engine does not serve the new weights. This is a defect of the "
            "engine's reload: report it with the model's architecture and go on with engine.kind = transformers"
        )
    if held.unproved and held.unproved not in _reported:
        _reported.add(held.unproved)
        logger.warning(
            "%d tensors of the engine cannot be compared with the learner's after a weight sync; "
            "for them the log-probs within engine.sync_tolerance are the only proof: %s",
            len(held.unproved),
            ", ".join(held.unproved),
        )


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

"""Metrics of an update, gathered over micro-batches, optimizer steps and the passes of an iteration."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from starpo.learning.prefix_tree import PrefixTree


class Meter:
    """Sums over the micro-batches of a step, means over the steps of an iteration."""

    def __init__(self) -> None:
        self._open: dict[str, list[float | Tensor]] = {}
        self._closed: dict[str, list[float]] = {}
        self._count: dict[str, int] = {}
        self._chained = self._computed = self._nodes = 0

    def add(self, name: str, value: float | Tensor) -> None:
        """One micro-batch's share of a sum; a scalar tensor waits on its device until the step is closed."""
        self._open.setdefault(name, []).append(value)

    def close_step(self, kind: str) -> None:
        """End of an optimizer step of ``kind``, such as ``actor``."""
        self._count[kind] = self._count.get(kind, 0) + 1
        for name, values in self._open.items():
            self._closed.setdefault(name, []).append(sum(float(value) for value in values))
        self._open = {}

    def drop_step(self) -> None:
        """End of an optimizer step that was not taken: its numbers count for nothing."""
        self._open = {}

    def count_work(self, tree: PrefixTree) -> None:
        """What the actor computes for a micro-batch."""
        self._chained += tree.chained
        self._computed += tree.computed
        self._nodes += tree.tokens.shape[1]

    def compare(self, learner: Tensor, engine: Tensor, mask: Tensor) -> None:
        """Engine against learner at the same weights: the running proof that both hold the same policy."""
        difference = (learner - engine).abs()[mask]
        self.add("logprob_difference_mean", difference.mean())
        self.add("logprob_difference_max", difference.max())
        self.close_step("comparison")

    def means(self) -> dict[str, float]:
        """All metrics by name."""
        means = {name: float(np.mean(values)) for name, values in self._closed.items()}
        means |= {f"{kind}_steps": float(count) for kind, count in self._count.items()}
        if self._computed:
            means["padding_share"] = 1.0 - self._chained / self._computed
            means["shared_token_share"] = 1.0 - self._nodes / self._chained
        return means


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary."""
    spread = float(torch.var(returns)) if len(returns) > 1 else 0.0
    return 1.0 - float(torch.var(returns - values)) / spread if spread > 0 else 0.0

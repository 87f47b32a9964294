"""The KL penalty to a run's first policy: where it acts, how strong it is, and how its strength adapts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from starpo.algorithms.kl import adapt_coefficient, subtract_kl, token_kl
from starpo.algorithms.masking import aggregate
from starpo.config.algorithm import AlgorithmConfig


class KLPenalty:
    """Holds the coefficient; an adaptive one is among the learner's counters, so a resumed run goes on with it."""

    def __init__(self, algorithm: AlgorithmConfig) -> None:
        self._algorithm = algorithm
        self.coefficient = algorithm.kl_coefficient
        """Present weight per nat."""

    @property
    def in_loss(self) -> bool:
        """Whether the penalty is a term of the loss."""
        return self.coefficient > 0 and self._algorithm.kl_in == "loss"

    @property
    def _adapts(self) -> bool:
        return self._algorithm.kl_target is not None

    def restore(self, counters: Mapping[str, float]) -> None:
        """Take over the coefficient of a stored learner state; the configured one where it has none."""
        configured = self._algorithm.kl_coefficient
        self.coefficient = counters.get("kl_coefficient", configured) if self._adapts else configured

    def counters(self) -> dict[str, float]:
        """What a learner state must hold; empty for a fixed coefficient."""
        return {"kl_coefficient": self.coefficient} if self._adapts else {}

    def rewards(self, logp: Tensor, reference: Tensor | None, mask: Tensor) -> Tensor | None:
        """Minus coefficient times KL of each token, float [N, T]; None unless the penalty is in the reward."""
        if reference is None or self.in_loss:
            return None
        return subtract_kl(
            torch.zeros_like(logp),
            logp,
            reference,
            mask,
            coefficient=self.coefficient,
            estimator=self._algorithm.kl_estimator,
        )

    def close_iteration(
        self, logp: Tensor, reference: Tensor | None, mask: Tensor, *, adapt: bool
    ) -> dict[str, float]:
        """Metrics of the iteration; afterwards an adaptive coefficient is the next iteration's, if ``adapt``.

        Args:
            logp: float [N, T], of the policy before the update.
            reference: float [N, T], of the first policy; None without a penalty.
            mask: bool [N, T].
            adapt: False where the policy did not learn, so that its distance says nothing about the coefficient.
        """
        if reference is None:
            return {}
        kl = token_kl(logp, reference, mask, self._algorithm.kl_estimator)
        measured = float(aggregate(kl, mask, "seq-mean-token-mean"))
        metrics = {"kl_coefficient": self.coefficient}
        if not self.in_loss:
            metrics["kl_to_base"] = measured
        target, horizon = self._algorithm.kl_target, self._algorithm.kl_horizon
        if adapt and target is not None and horizon is not None:
            self.coefficient = adapt_coefficient(
                self.coefficient, measured, target=target, horizon=horizon, steps=len(mask)
            )
        return metrics

"""One learner for the whole run, built at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.store.policies import Policy

if TYPE_CHECKING:
    from starpo.learning.learner import Learner


class LearnerHost:
    """Lent to the update node; ``at`` restores the asked policy's state on a mismatch."""

    def __init__(self) -> None:
        self._learner: Learner | None = None

    def at(
        self, policy: Policy, config: LearnerConfig, algorithm: AlgorithmConfig, *, temperature: float
    ) -> Learner:
        """The learner holding exactly the state of ``policy``."""
        if self._learner is None:
            from starpo.learning.learner import Learner  # noqa: PLC0415 - loads torch

            self._learner = Learner(policy, config, algorithm, temperature=temperature)
        self._learner.restore(policy)
        return self._learner

    def close(self) -> None:
        """Free the learner."""
        self._learner = None

"""An environment of a user's own that knows all there is to know, addressed as ``knowing_environments:Knowing``.

In a module of its own, because the processes that it may live in import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.records import Expectation, Failure, Limits, PlayedEpisode

#: Chance that a jump lands.
LANDS = 0.25


class Knowing(TextEnvironment):
    """One jump over a gap. ``Jump`` lands with a quarter's chance, ``Wait`` never does and ends the episode too.

    ``strange`` names a method whose answer is none.
    """

    rules, action_names, return_range = "Jump.", ("Jump", "Wait"), (0.0, 1.0)
    failure_labels: ClassVar = {"waited": "it waited", "fell": "it jumped and fell"}

    def __init__(self, *, strange: str = "") -> None:
        super().__init__()
        self.strange = strange

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self.number = int(instance.integers(10**6))
        self.looks = 0
        return f"gap {self.number}", {"success": False}

    def _act(self, action: str) -> StepResult:
        self.looks += 1
        landed = bool(self.dynamics.random() < LANDS) and action == "Jump"
        return f"look {self.looks}", float(landed), True, False, {"success": landed, "effective": True}

    def _or_strange(self, method: str, answer: Any) -> Any:
        return [method] if self.strange == method else answer

    def optimal_actions(self) -> list[str]:
        return ["Jump"]

    def best_play(self, limits: Limits) -> Expectation:
        return self._or_strange("best_play", Expectation(LANDS, LANDS))

    def random_play(self, limits: Limits) -> Expectation:
        return self._or_strange("random_play", Expectation(LANDS / 2, LANDS / 2))

    def chance_of(self, plan: Sequence[str]) -> float:
        return self._or_strange("chance_of", LANDS if plan[0] == "Jump" else 0.0)

    def state(self) -> int:
        return self._or_strange("state", self.number)

    def own_failure(self, episode: PlayedEpisode) -> Failure | None:
        if episode.success:
            return None
        (step,) = episode.steps
        assert step.before == step.after == self.number, "the state, not the observation"
        jumped = step.action == "Jump"
        failure = Failure("fell" if jumped else "waited", step.turn, unlucky=jumped)
        return self._or_strange("own_failure", failure)

    @classmethod
    def board_of(cls, observation: str) -> str | None:
        rows = [line for line in observation.split("\n") if set(line) <= set(".P")]
        return "\n".join(rows) or None

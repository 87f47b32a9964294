"""Tasks of the ``reasoning-gym`` library: one question, one free-text answer, scored by the task itself."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from starpo.environments.base import StepResult, TextEnvironment
from starpo.errors import UserError

#: Items of a task; each is made when it is asked for.
ITEMS: Final = 1 << 30


class ReasoningGym(TextEnvironment):
    """A question of a ``reasoning-gym`` task.

    Description:
        The library makes questions of more than a hundred kinds, each with its own checker of answers.

    Action Space:
        Free text: all that stands inside ``<answer>``. With ``action_separator`` in it the text before it counts.

    Observation:
        The question; after the answer its score.

    Starting State:
        An item of the task, drawn with the instance; there is no luck.

    Rewards:
        The task's score of the answer, 0 to 1. ``success`` means a score of 1.

    Episode End:
        Terminated by the only answer.

    Arguments:
        task: name of the dataset, such as ``chain_sum``.
        configuration: its keyword arguments, such as ``{max_terms: 4}``, without ``seed`` and ``size``.
    """

    rules = "Answer the question. The answer alone counts, in the form that the question asks for."
    action_names = ()
    return_range = (0.0, 1.0)

    def __init__(self, *, task: str, configuration: dict[str, Any] | None = None) -> None:
        super().__init__()
        try:
            import reasoning_gym  # noqa: PLC0415 - optional, and importing it takes a second
        except ImportError as error:
            raise UserError(
                f"environment reasoning_gym: the library is not installed ({error}); "
                "pip install 'starpo[reasoning-gym]'"
            ) from None
        given = configuration or {}
        if own := {"seed", "size"} & set(given):
            raise ValueError(f"ReasoningGym: configuration sets {min(own)!r}, which belongs to the run")
        known = reasoning_gym.factory.DATASETS
        if task not in known:
            raise ValueError(f"ReasoningGym: task is {task!r}, allowed: {', '.join(sorted(known))}")
        try:
            self._items = reasoning_gym.create_dataset(task, **{"seed": 0, "size": ITEMS, **given})
        except (AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"ReasoningGym: task {task!r} refuses configuration {given}: {error}") from error
        self._item: dict[str, Any] = {}

    def optimal_actions(self) -> list[str]:
        """The reference answer."""
        return [str(self._item["answer"])]

    def random_action(self, draw: np.random.Generator) -> str:
        """The answer to another item."""
        return str(self._items[int(draw.integers(ITEMS))]["answer"])

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self._item = self._items[int(instance.integers(ITEMS))]
        return str(self._item["question"]), {"success": False}

    def _act(self, action: str) -> StepResult:
        score = float(self._items.score_answer(action, self._item))
        info = {
            "success": score >= 1.0,
            "effective": True,
            "answer": str(self._item["answer"]),
            "metadata": json.loads(json.dumps(self._item.get("metadata", {}), default=str)),
        }
        return f"Score: {score:g}", score, True, False, info

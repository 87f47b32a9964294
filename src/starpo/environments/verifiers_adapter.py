"""Tasksets of the ``verifiers`` library (0.4 or newer): one prompt, one free-text answer, scored by their rewards.

The library's pins do not go with those of this project, so it is imported only here and only where it is used. Its
tasks with tools or containers run inside its own harness; those are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

from starpo.environments.base import StepResult, TextEnvironment
from starpo.errors import UserError


class Verifiers(TextEnvironment):
    """A task of a ``verifiers`` taskset.

    Description:
        The rows of an installed taskset. A task's ``@reward`` functions judge the answer without a runtime.

    Action Space:
        Free text: all that stands inside ``<answer>``. With ``action_separator`` in it the text before it counts.

    Observation:
        The task's prompt, its system prompt before it; after the answer its reward.

    Starting State:
        A row of the first ``rows``, drawn with the instance; there is no luck.

    Rewards:
        The weighted sum of the task's rewards. ``success`` means at least ``success_reward``.

    Episode End:
        Terminated by the only answer.

    Arguments:
        taskset: its id, the name of an installed package or module.
        configuration: keyword arguments of its configuration.
        rows: rows that are used; the taskset may have fewer.
        success_reward: reward from which the task counts as solved.
        return_range: smallest and largest reward.
    """

    rules = "Answer the question. The answer alone counts, in the form that the question asks for."
    action_names = ()

    @classmethod
    def code_in(cls, arguments: Mapping[str, Any]) -> list[str]:
        """The taskset, a package or module."""
        return [str(arguments["taskset"])] if "taskset" in arguments else []

    def __init__(
        self,
        *,
        taskset: str,
        configuration: dict[str, Any] | None = None,
        rows: int = 10_000,
        success_reward: float = 1.0,
        return_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__()
        try:
            from verifiers import v1  # noqa: PLC0415 - optional
        except ImportError as error:
            raise UserError(
                f"environment verifiers: the library is not installed, or is older than 0.4 ({error}); make an "
                "environment of its own for it: make test-verifiers shows how"
            ) from None
        self._v1: Any = v1
        try:
            config = v1.taskset_config_type(taskset)(id=taskset, **(configuration or {}))
            self._tasks = list(v1.load_taskset(config).take(rows))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"Verifiers: taskset is {taskset!r}: {type(error).__name__}: {error}") from error
        if not self._tasks:
            raise ValueError(f"Verifiers: taskset {taskset!r} has no rows")
        kind = type(self._tasks[0])
        if kind.NEEDS_CONTAINER or kind.toolsets(self._tasks[0].config):
            raise ValueError(
                f"Verifiers: the tasks of {taskset!r} need a container or tools, which only the library's own harness "
                "gives; single answers are supported"
            )
        self.return_range = (float(return_range[0]), float(return_range[1]))
        self._success_reward = success_reward
        self._task: Any = self._tasks[0]

    def random_action(self, draw: np.random.Generator) -> str:
        """A small number: a well-formed answer of no merit."""
        return str(int(draw.integers(100)))

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self._task = self._tasks[int(instance.integers(len(self._tasks)))]
        return self._prompt(), {"success": False}

    def _act(self, action: str) -> StepResult:
        trace = self._trace(action)
        # An event loop of its own, also where one runs already: steps are plain calls.
        runner = asyncio.new_event_loop()
        try:
            runner.run_until_complete(self._task.score(trace))
        finally:
            runner.close()
        reward = float(trace.reward)
        rewards = {name: each.value for name, each in trace.rewards.items() if each is not None}
        info = {"success": reward >= self._success_reward, "effective": True, "rewards": rewards}
        return f"Reward: {reward:g}", reward, True, False, info

    def _prompt(self) -> str:
        data = self._task.data
        return "\n\n".join(text for text in (data.system_prompt, data.prompt_text) if text)

    def _trace(self, answer: str) -> Any:
        v1, data = self._v1, self._task.data
        trace = v1.Trace(
            task=v1.TraceTask(type=type(self._task).__name__, data=data, key=self._task.key),
            agent=v1.AgentInfo(config=v1.AgentConfig()),
        )
        trace.nodes.append(v1.MessageNode(message=v1.UserMessage(content=data.prompt_text)))
        trace.nodes.append(
            v1.MessageNode(parent=0, message=v1.AssistantMessage(content=answer), sampled=True)
        )
        return trace

"""The interface between an agent that writes text and a task: Gymnasium's API with text in and text out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import gymnasium
import numpy as np

StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class TextEnvironment(gymnasium.Env[str, str]):
    """A task whose observations are text and whose actions are names.

    Subclasses implement ``_begin`` and ``_act``. ``reset`` takes two seeds, because members of a group share
    the task and nothing else: ``seed`` chooses the *instance* (map, room, arm names),
    ``options={"dynamics_seed": n}`` the luck (slips, payouts). Without a dynamics seed the instance seed is
    used for both.

    ``info`` of ``reset`` and ``step`` always holds ``success`` (bool: the task is solved) and ``step`` adds
    ``effective`` (bool: the action changed something).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]

    #: What the agent is told once: the rules, the legend and the goal. Must follow the symbols in use.
    rules: str
    #: Constant pieces of its observations, which a tokenizer made for it holds as single tokens.
    phrases: tuple[str, ...] = ()
    #: Names of the legal actions, in a fixed order; empty for environments whose actions are free text.
    action_names: tuple[str, ...]
    #: Smallest and largest return one episode can give, before format penalties; gates check against it.
    return_range: tuple[float, float]
    #: What every executed action takes off the return, 0 or more. A format penalty that is no higher than a turn of
    #: actions makes saying nothing pay; a run warns of it.
    action_cost: float = 0.0

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Text(max_length=1 << 20)
        self.action_space = gymnasium.spaces.Text(max_length=4096)
        self.dynamics = np.random.Generator(np.random.PCG64(0))
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start the instance ``seed`` under the luck ``options["dynamics_seed"]``; return text and info."""
        super().reset(seed=seed)
        dynamics_seed = (options or {}).get("dynamics_seed", seed)
        self.dynamics = np.random.Generator(np.random.PCG64(dynamics_seed))
        self._over = False
        return self._begin(self.np_random)

    def step(self, action: str) -> StepResult:
        """Do the named action. Raises ``RuntimeError`` after the episode ended, ``ValueError`` on an unknown name."""
        if self._over:
            raise RuntimeError(f"{type(self).__name__}: step after the episode ended; call reset first")
        names = self.action_names
        if action not in names and names:
            raise ValueError(f"{type(self).__name__}: unknown action {action!r}, one of {names}")
        result = self._act(action)
        try:
            self._over = result[2] or result[3]
        except (TypeError, LookupError, ValueError):  # no step's result: the contract's check says what it is
            self._over = True
        return result

    def match_action(self, text: str) -> str | None:
        """The legal action that ``text`` names (case and outer blanks ignored), or None.

        Where actions are free text (no ``action_names``), the text itself without its outer blanks.
        """
        if not self.action_names:
            return text.strip() or None
        wanted = text.strip().casefold()
        return next((name for name in self.action_names if name.casefold() == wanted), None)

    def random_action(self, draw: np.random.Generator) -> str:
        """A uniformly drawn legal action of the present state; environments with free text define their own."""
        if not self.action_names:
            raise NotImplementedError(
                f"{type(self).__name__}: free-text actions need a random_action of their own"
            )
        return self.action_names[int(draw.integers(len(self.action_names)))]

    @abstractmethod
    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        """Draw the instance from ``instance`` alone and return the first observation and info."""

    @abstractmethod
    def _act(self, action: str) -> StepResult:
        """One step; luck comes from ``self.dynamics`` alone."""

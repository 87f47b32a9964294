"""The interface between an agent that writes text and a task: Gymnasium's API with text in and text out."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np

from starpo.environments.records import Expectation, Failure, Limits, PlayedEpisode, StateFacts

#: A row of a board: cells side by side, or with a blank between each two.
_ROW: Final = re.compile(r"\S{2,}|(\S )+\S")

StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class TextEnvironment(gymnasium.Env[str, str]):
    """A task whose observations are text and whose actions are names.

    Subclasses implement ``_begin`` and ``_act``. ``reset`` takes two seeds, because members of a group share
    the task and nothing else: ``seed`` chooses the *instance* (map, room, arm names),
    ``options={"dynamics_seed": n}`` the luck (slips, payouts). Without a dynamics seed the instance seed is
    used for both.

    ``info`` of ``reset`` and ``step`` always holds ``success`` (bool: the task is solved) and ``step`` adds
    ``effective`` (bool: the action changed something).

    From ``optimal_actions`` on the methods are knowledge about its own play, each optional: the defaults say "I do
    not know", and what needs the answer does without or measures it.
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
    #: Labels that ``own_failure`` may give, with the condition of each, in the order of metrics.
    failure_labels: ClassVar[Mapping[str, str]] = {}
    #: It cannot crash, hang or exit, and so stays in the run's process where ``environment.workers`` is above 0.
    trusted: bool = False

    @classmethod
    def code_in(cls, arguments: Mapping[str, Any]) -> list[str]:
        """Names of modules among its arguments, which building it would import."""
        return []

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

    def knows(self, name: str) -> bool:
        """Whether the method ``name``, of the class or of this one object, is another than that of the base class."""
        method = getattr(self, name, None)
        own = getattr(method, "__func__", method)
        return method is not None and own is not getattr(TextEnvironment, name, None)

    def optimal_actions(self) -> list[str]:
        """A plan that is optimal from the present state of a running episode; empty where nothing can help."""
        raise NotImplementedError(f"{type(self).__name__} knows no solution of its own")

    def best_play(self, limits: Limits) -> Expectation | None:
        """The best that any agent can expect from the present state under ``limits``, exactly."""
        return None

    def random_play(self, limits: Limits) -> Expectation | None:
        """What uniformly drawn legal actions can expect that use the limits up, exactly."""
        return None

    def chance_of(self, plan: Sequence[str]) -> float | None:
        """Chance that ``plan``, played from the present state without looking, succeeds under fresh luck, exactly."""
        return None

    def state(self) -> Hashable | None:
        """What tells states of an episode apart; None: the observation's text does."""
        return None

    def own_failure(self, episode: PlayedEpisode) -> Failure | None:
        """One of ``failure_labels`` for ``episode``, which was played on this environment; None: none of them."""
        return None

    def facts(self, observation: str) -> StateFacts | None:
        """The state behind ``observation``, from its text and the constructor's arguments alone, so that what is stored
        can be judged without being played again; None: the text shows no state."""
        return None

    def distance(self, observation: str) -> float | None:
        """Fewest actions from the state behind ``observation`` to success, luck left aside: 0 where it is reached,
        ``math.inf`` where it is out of reach, None where nobody knows. From the text alone, as :meth:`facts`."""
        return None

    @classmethod
    def board_of(cls, observation: str) -> str | None:
        """The lines of ``observation`` that are a board, a cell a character, for the report; None: no board.

        The default takes the longest run of two or more lines that have one length and no blanks, or single ones
        between all cells.
        """
        best: list[str] = []
        run: list[str] = []
        for line in observation.split("\n"):
            if not _ROW.fullmatch(line):
                run = []
                continue
            run = [*run, line] if run and len(run[-1]) == len(line) else [line]
            best = max(best, run, key=len)
        return "\n".join(best) if len(best) > 1 else None

    @abstractmethod
    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        """Draw the instance from ``instance`` alone and return the first observation and info."""

    @abstractmethod
    def _act(self, action: str) -> StepResult:
        """One step; luck comes from ``self.dynamics`` alone."""

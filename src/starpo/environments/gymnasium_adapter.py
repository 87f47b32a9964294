"""Any Gymnasium environment with named discrete actions, or with text for actions, as a text environment."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np

from starpo.environments.arguments import is_number
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.contract import ContractError
from starpo.environments.splits import Split, split_of


class Gymnasium(TextEnvironment):
    """``gymnasium.make(id)`` behind the text interface.

    Description:
        Whatever ``id`` names; ``my_package.my_module:Name-v0`` imports the module first, which registers it.

    Action Space:
        ``Discrete``: ``action_names`` gives one name per action, in order. ``Text``: free text, no names.

    Observation:
        The environment's own text, or what ``describe(env, observation)`` makes of anything else.

    Starting State:
        ``reset(seed=instance seed)``. With a dynamics seed the environment's ``np_random`` is replaced
        after that by a generator of the dynamics seed, so that what happens from then on is the episode's own luck.
        An environment must draw its luck from ``np_random``, as Gymnasium asks, and its first observation
        must not depend on luck.

    Rewards:
        The environment's own.

    Episode End:
        The environment's own, time limits of its registration included.

    Arguments:
        id: name for ``gymnasium.make``.
        rules: what the agent is told once: the task, the symbols, the actions.
        action_names: one name per discrete action.
        describe: ``module:function`` of (unwrapped environment, observation) -> text; null where it is text.
        success: a number: the task is solved once a step's reward reaches it; ``terminated``: once the episode
            terminates; or ``module:function`` of (unwrapped environment, reward, terminated) -> bool.
        options: further keyword arguments of ``gymnasium.make``.
        return_range: smallest and largest return; null: unknown.
        split_by: ``observation`` puts equal first observations into one split; ``seed`` splits seeds, for
            environments with one or few starts, whose held-out instances then only differ in luck.
    """

    rules: str

    @classmethod
    def code_in(cls, arguments: Mapping[str, Any]) -> list[str]:
        """Those of ``id``, ``describe`` and ``success`` that name a module."""
        named = [arguments.get(key) for key in ("id", "describe", "success")]
        return [each for each in named if isinstance(each, str) and ":" in each]

    def __init__(
        self,
        *,
        id: str,
        rules: str,
        action_names: Sequence[str] = (),
        describe: str | None = None,
        success: float | str = 1.0,
        options: dict[str, Any] | None = None,
        return_range: Sequence[float] | None = None,
        split_by: Literal["observation", "seed"] = "observation",
    ) -> None:
        super().__init__()
        if split_by not in {"observation", "seed"}:
            raise ValueError(f"Gymnasium: split_by is {split_by!r}, allowed: observation, seed")
        self.rules = rules
        if isinstance(action_names, str):
            raise ValueError(f"Gymnasium: action_names is {action_names!r}, allowed: a list of names")
        self.action_names = tuple(action_names)
        self.return_range = _bounds(return_range)
        try:
            self.wrapped: gymnasium.Env[Any, Any] = gymnasium.make(
                id, **{"disable_env_checker": True, **(options or {})}
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(f"Gymnasium: id is {id!r}: {type(error).__name__}: {error}") from error
        self._id = id
        self._describe = None if describe is None else _function("describe", describe)
        self._success = _criterion(success)
        self._split_by = split_by
        self._seeds: tuple[int | None, int | None] = None, None
        self._text = ""
        self._start = self._check_spaces()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """As :class:`TextEnvironment`; without a dynamics seed exactly ``gymnasium``'s ``reset(seed=seed)``."""
        self._seeds = seed, (options or {}).get("dynamics_seed")
        return super().reset(seed=seed, options=options)

    def declared_split(self) -> Split:
        """The split of the present instance, see ``split_by``."""
        return split_of(self._text if self._split_by == "observation" else f"seed {self._seeds[0]}")

    def close(self) -> None:
        """Close the wrapped environment."""
        self.wrapped.close()

    def random_action(self, draw: np.random.Generator) -> str:
        """A name, or a text of the action space."""
        if self.action_names:
            return super().random_action(draw)
        self.wrapped.action_space.seed(int(draw.integers(2**31)))
        return str(self.wrapped.action_space.sample())

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        seed, dynamics_seed = self._seeds
        observation, _ = self.wrapped.reset(seed=seed)
        if dynamics_seed is not None:
            self.wrapped.unwrapped.np_random = self.dynamics
        self._text = self._read(observation)
        return self._text, {"success": False}

    def _act(self, action: str) -> StepResult:
        move = self._start + self.action_names.index(action) if self.action_names else action
        observation, reward, terminated, truncated, _ = self.wrapped.step(move)
        before, now = self._text, self._read(observation)
        self._text = now
        done, gained = bool(terminated), float(reward)
        info = {
            "success": bool(self._success(self.wrapped.unwrapped, gained, done)),
            "effective": now != before or done,
        }
        return now, gained, done, bool(truncated), info

    def _read(self, observation: Any) -> str:
        if self._describe is not None:
            text = self._describe(self.wrapped.unwrapped, observation)
            if not isinstance(text, str):
                kind = type(text).__name__
                raise ContractError(
                    f"environment {self._id!r}: describe's result is {text!r} of type {kind}, expected str"
                )
            return text
        if not isinstance(observation, str):
            raise TypeError(
                f"Gymnasium: {self._id} observes {observation!r} of type {type(observation).__name__}; give describe: "
                "module:function of (environment, observation) -> text"
            )
        return observation

    def _check_spaces(self) -> int:
        """Refuse what cannot be played with names; returns the number of the first discrete action."""
        space = self.wrapped.action_space
        if isinstance(space, gymnasium.spaces.Text) and not self.action_names:
            return 0
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(
                f"Gymnasium: the actions of {self._id} are {space}; only Discrete ones with action_names, and Text "
                "ones without, can be named. Wrap it with gymnasium.ActionWrapper first"
            )
        if len(self.action_names) != space.n:
            raise ValueError(
                f"Gymnasium: action_names is {self.action_names}, expected one name for each of the {space.n} actions "
                f"of {self._id}"
            )
        if self._describe is None and not isinstance(self.wrapped.observation_space, gymnasium.spaces.Text):
            raise ValueError(
                f"Gymnasium: {self._id} observes {self.wrapped.observation_space}, which is no text; give describe: "
                "module:function of (environment, observation) -> text"
            )
        return int(space.start)


def _function(key: str, path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"Gymnasium: {key} is {path!r}, expected module:function ({error})") from error
    if not callable(found):
        raise ValueError(f"Gymnasium: {key} is {path!r}, which is no function")
    return found  # type: ignore[no-any-return]


def _bounds(return_range: Sequence[float] | None) -> tuple[float, float]:
    if return_range is None:
        return -math.inf, math.inf
    if (
        not isinstance(return_range, Sequence)
        or len(return_range) != 2
        or not all(map(is_number, return_range))
    ):
        raise ValueError(
            f"Gymnasium: return_range is {return_range!r}, allowed: two numbers, smallest and largest"
        )
    return float(return_range[0]), float(return_range[1])


def _criterion(success: float | str) -> Callable[[Any, float, bool], bool]:
    if isinstance(success, str) and success != "terminated":
        return _function("success", success)
    if success == "terminated":
        return lambda env, reward, terminated: terminated
    if isinstance(success, str) or not is_number(success):
        raise ValueError(
            f"Gymnasium: success is {success!r}, allowed: a reward, terminated, or module:function of (environment, "
            "reward, terminated)"
        )
    threshold = float(success)
    return lambda env, reward, terminated: reward >= threshold

"""Optimal play for every built-in environment: what demonstrators show and success is measured against.

Success and return are measured against two ends: the best that any agent can do under the harness's limits on
turns and actions, and what actions drawn at random do under the same limits. Both are exact expectations over
an environment's luck.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import check_plan, close
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.frozen_lake_solver import (
    MAX_BLOCK,
    LakePaths,
    LakePlan,
    likely_path,
    plan_frozen_lake,
    random_walk,
    shortest_path,
    solve_frozen_lake,
)
from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_solver import best_within, random_play, solve_sokoban
from starpo.environments.webshop.environment import WebShop
from starpo.environments.webshop.oracle import best_reward, optimal_actions_for

__all__ = [
    "SOLVED",
    "Expectation",
    "LakePaths",
    "LakePlan",
    "Limits",
    "best_play",
    "has_solver",
    "optimal_actions",
    "plan_frozen_lake",
    "random_actions",
    "solve_frozen_lake",
    "solve_sokoban",
]

#: Fewest moves that a slippery lake's plan looks ahead: the paper's action budget per episode.
SLIPPERY_HORIZON: Final = 10


#: Environments that are solved here, and not by a method of their own.
SOLVED: Final = (Bandit, FrozenLake, Sokoban, WebShop)


@dataclass(frozen=True)
class Limits:
    """What the harness allows in one episode."""

    turns: int
    """Turns; the environment is seen between them only."""
    actions_per_turn: int
    """Actions of one turn, done one after the other without looking."""
    actions: int
    """Actions in all."""

    @property
    def moves(self) -> int:
        """Most actions that an episode can hold."""
        return min(self.actions, self.turns * self.actions_per_turn)


@dataclass(frozen=True)
class Expectation:
    """What a way of playing one instance achieves on average over its luck."""

    success: float
    """Chance of success."""
    value: float
    """Expected return: the environment's rewards, without a format penalty or other terms."""


def best_play(env: TextEnvironment, limits: Limits) -> Expectation | None:
    """The best any agent can achieve from ``env``'s present state under ``limits``; None without a solver.

    FrozenLake: dynamic programming over turns of blind actions. Sokoban: breadth-first search. Bandit: the
    better arm. WebShop: the best purchase, where its way fits the limits. An environment that solves itself: its
    plan played out, where that fits the limits and meets no luck. On slippery ice None as well where more than
    ``MAX_BLOCK`` actions per turn are allowed.
    """
    if isinstance(env, Bandit):
        return Expectation(1.0, env.high_probability)
    if isinstance(env, Sokoban):
        solved, value = best_within(env, min(limits.moves, env.max_steps))
        return Expectation(float(solved), value)
    if isinstance(env, FrozenLake):
        return _best_crossing(env, limits)
    if isinstance(env, WebShop) and len(optimal_actions_for(env)) <= limits.moves:
        score = best_reward(env)
        return Expectation(float(score == 1), float(score == 1) if env.binary_reward else score)
    if isinstance(env, Solves):
        plan, twin = _own_plan(env)[: limits.moves], copy.deepcopy(env)
        try:
            return _played_out(twin, plan)
        finally:
            close(twin)
    return None


def _best_crossing(env: FrozenLake, limits: Limits) -> Expectation | None:
    longest = min(limits.actions_per_turn, limits.moves)
    if env.success_probability == 1:
        chance = float(0 < len(shortest_path(env)) <= limits.moves)
    elif longest <= MAX_BLOCK:
        chance = plan_frozen_lake(
            env, turns=limits.turns, actions_per_turn=longest, total_actions=limits.actions
        ).value
    else:
        return None
    return Expectation(chance, chance)


def _played_out(env: TextEnvironment, plan: list[str]) -> Expectation | None:
    """What the plan achieves; None where it does not end the episode or luck has a say. ``env`` is used up."""
    luck = env.dynamics.bit_generator.state
    success, earned, over = False, 0.0, False
    for action in plan:
        _, reward, terminated, truncated, info = env.step(action)
        earned += reward
        success, over = bool(info["success"]), terminated or truncated
        if over:
            break
    if not over or env.dynamics.bit_generator.state != luck:
        return None
    return Expectation(float(success), earned)


def random_actions(env: TextEnvironment, limits: Limits) -> Expectation | None:
    """What uniformly drawn legal actions achieve that use the limits up; None without a closed form.

    As many actions per turn as are allowed: between turns a random player learns nothing, so only their number
    in all matters.
    """
    if isinstance(env, Bandit):
        return Expectation(0.5, (env.low_reward + env.high_probability) / 2)
    if isinstance(env, Sokoban):
        return Expectation(*random_play(env, min(limits.moves, env.max_steps)))
    if isinstance(env, FrozenLake):
        chance = random_walk(env, moves=limits.moves)
        return Expectation(chance, chance)
    return None


@runtime_checkable
class Solves(Protocol):
    """An environment of anyone's that knows how to play itself."""

    def optimal_actions(self) -> list[str]:
        """An optimal plan from the present state; empty where there is none."""


def has_solver(env: TextEnvironment) -> bool:
    """Whether :func:`optimal_actions` knows ``env``."""
    return isinstance(env, (*SOLVED, Solves))


def optimal_actions(env: TextEnvironment) -> list[str]:
    """An optimal plan from the environment's present state; empty when the episode is over or hopeless.

    Without luck the plan solves the task. On slippery ice its first action is optimal and the rest follows
    the most likely outcomes, so ask again after each turn; for blocks of actions that are optimal under the
    rollout's limits see ``plan_frozen_lake``. An environment's own method ``optimal_actions`` comes first. Raises
    ``TypeError`` for an environment without a solver.
    """
    if env._over:
        return []
    if isinstance(env, Solves):
        return _own_plan(env)
    if isinstance(env, FrozenLake):
        return _crossing(env)
    if isinstance(env, Bandit):
        return [env.best_arm]
    if isinstance(env, Sokoban):
        return solve_sokoban(env) or []
    if isinstance(env, WebShop):
        return optimal_actions_for(env)
    raise TypeError(f"optimal_actions: no solver for {type(env).__name__}")


def _own_plan(env: Solves) -> list[str]:
    return check_plan(type(env).__name__, env.optimal_actions())


def _crossing(env: FrozenLake) -> list[str]:
    path = shortest_path(env)
    if env.success_probability == 1 or not path:
        return path
    # Slips make detours: twice the shortest path lets the optimum be careful on large lakes.
    return likely_path(env, horizon=max(SLIPPERY_HORIZON, 2 * len(path)))

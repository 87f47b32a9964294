"""Optimal play for every built-in environment: what demonstrators show and success is measured against."""

from __future__ import annotations

from typing import Final

from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.frozen_lake_solver import (
    LakePaths,
    LakePlan,
    likely_path,
    plan_frozen_lake,
    shortest_path,
    solve_frozen_lake,
)
from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_solver import solve_sokoban

__all__ = [
    "LakePaths",
    "LakePlan",
    "optimal_actions",
    "plan_frozen_lake",
    "solve_frozen_lake",
    "solve_sokoban",
]

#: Fewest moves that a slippery lake's plan looks ahead: the paper's action budget per episode.
SLIPPERY_HORIZON: Final = 10


def optimal_actions(env: TextEnvironment) -> list[str]:
    """An optimal plan from the environment's present state; empty when the episode is over or hopeless.

    Without luck the plan solves the task. On slippery ice its first action is optimal and the rest follows
    the most likely outcomes, so ask again after each turn; for blocks of actions that are optimal under the
    rollout's limits see ``plan_frozen_lake``. Raises ``TypeError`` for an environment without a solver.
    """
    if env._over:
        return []
    if isinstance(env, FrozenLake):
        path = shortest_path(env)
        if env.success_probability == 1 or not path:
            return path
        # Slips make detours: twice the shortest path lets the optimum be careful on large lakes.
        return likely_path(env, horizon=max(SLIPPERY_HORIZON, 2 * len(path)))
    if isinstance(env, Bandit):
        return [env.best_arm]
    if isinstance(env, Sokoban):
        return solve_sokoban(env) or []
    raise TypeError(f"optimal_actions: no solver for {type(env).__name__}")

"""Optimal play of any environment that knows how: what demonstrators show and success is measured against."""

from __future__ import annotations

import copy

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import check_expectation, check_plan, close
from starpo.environments.records import Expectation, Limits


def has_solver(env: TextEnvironment) -> bool:
    """Whether :func:`optimal_actions` knows ``env``."""
    return env.knows("optimal_actions")


def optimal_actions(env: TextEnvironment) -> list[str]:
    """An optimal plan from the environment's present state; empty when the episode is over or hopeless.

    Without luck the plan solves the task; with luck ask again after each turn. Raises ``TypeError`` for an
    environment without a solver.
    """
    if not has_solver(env):
        raise TypeError(f"optimal_actions: no solver for {type(env).__name__}")
    return [] if env._over else check_plan(type(env).__name__, env.optimal_actions())


def best_play(env: TextEnvironment, limits: Limits) -> Expectation | None:
    """The best any agent can achieve from ``env``'s present state under ``limits``; None where nobody knows.

    An environment that knows no ``best_play`` but a solution has that played out on a copy; None where it does not
    fit the limits or meets luck.
    """
    if env.knows("best_play"):
        return check_expectation(env, env.best_play(limits), of="best_play")
    if not has_solver(env):
        return None
    plan, twin = check_plan(type(env).__name__, env.optimal_actions())[: limits.moves], copy.deepcopy(env)
    try:
        return _played_out(twin, plan)
    finally:
        close(twin)


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

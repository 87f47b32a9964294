"""How much of an outcome was luck: the same actions once more, under other slips and payouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.frozen_lake_solver import chance_of
from starpo.evaluation.trajectories import Episode
from starpo.seeds import Purpose, SeedKey

#: Fresh lucks per trajectory where the chance has no closed form.
REPLAYS: Final = 16


def has_closed_form(env: TextEnvironment) -> bool:
    """Whether :func:`chance_of_plan` is exact for this environment."""
    return isinstance(env, Bandit | FrozenLake)


def chance_of_plan(env: TextEnvironment, episode: Episode, *, suite: str, seed: int) -> float:
    """Chance that the trajectory's actions, played without looking, succeed under a luck of their own.

    The actions are those of ``episode.plan``. FrozenLake: exact. Bandit: the chance that the better arm, which a
    won trajectory chose, pays. Others: the share of ``REPLAYS`` replays whose seeds are keyed by (``seed``,
    suite, prompt, sample, replay).
    """
    if isinstance(env, Bandit):
        return env.high_probability
    if isinstance(env, FrozenLake):
        env.reset(seed=episode.instance_seed)
        return chance_of(env, episode.plan)
    key = SeedKey(seed, Purpose.DYNAMICS, f"luck:{suite}", group=episode.group, member=episode.member)
    seeds = [dataclasses.replace(key, attempt=number).integer() for number in range(REPLAYS)]
    return sum(_succeeds(env, episode.instance_seed, each, episode.plan) for each in seeds) / REPLAYS


def _succeeds(env: TextEnvironment, instance_seed: int, dynamics_seed: int, plan: Sequence[str]) -> bool:
    try:
        _, info = env.reset(seed=instance_seed, options={"dynamics_seed": dynamics_seed})
        for action in plan:
            _, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
    except OWN_FAILURES:  # an environment's own failure is no success
        return False
    return bool(plan) and bool(info["success"])

"""How much of an outcome was luck: the same actions once more, under other slips and payouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, ContractError, check_chance
from starpo.evaluation.trajectories import Episode
from starpo.seeds import Purpose, SeedKey

#: Fresh lucks per trajectory where the chance has no closed form.
REPLAYS: Final = 16


def has_closed_form(env: TextEnvironment) -> bool:
    """Whether the environment knows the chance of a plan exactly."""
    return env.knows("chance_of")


def chance_of_plan(env: TextEnvironment, episode: Episode, *, suite: str, seed: int) -> float:
    """Chance that the trajectory's actions, played without looking, succeed under a luck of their own.

    The actions are those of ``episode.plan``. Exact where the environment knows ``chance_of``, else the share of
    ``REPLAYS`` replays whose seeds are keyed by (``seed``, suite, prompt, sample, replay).
    """
    exact = _exact(env, episode) if has_closed_form(env) else None
    if exact is not None:
        return exact
    key = SeedKey(seed, Purpose.DYNAMICS, f"luck:{suite}", group=episode.group, member=episode.member)
    seeds = [dataclasses.replace(key, attempt=number).integer() for number in range(REPLAYS)]
    return sum(_succeeds(env, episode.instance_seed, each, episode.plan) for each in seeds) / REPLAYS


def _exact(env: TextEnvironment, episode: Episode) -> float | None:
    try:
        env.reset(seed=episode.instance_seed)
        return check_chance(env, env.chance_of(episode.plan))
    except ContractError:
        raise
    except OWN_FAILURES:  # replays are left
        return None


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

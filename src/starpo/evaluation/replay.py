"""A stored trajectory played again: what the environment did at every single action."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import cast

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.frozen_lake_solver import as_lake
from starpo.environments.sokoban import Sokoban
from starpo.evaluation.trajectories import Episode


@dataclass(frozen=True)
class Step:
    """One executed action."""

    turn: int
    """Turn that it belongs to, from 0."""
    action: str
    """Its name."""
    before: Hashable
    """State before, as :func:`state_of` gives it."""
    after: Hashable
    """State after."""
    effective: bool
    """It changed something."""


@dataclass(frozen=True)
class Replay:
    """A trajectory's steps in order."""

    start: Hashable
    """State at the beginning."""
    steps: tuple[Step, ...]
    """Executed actions."""
    lucky: bool
    """The environment drew from its dynamics: another luck may give another end."""
    faithful: bool
    """Every turn ended in the observation that was stored. A False names an environment whose answers do not
    depend on its seeds and actions alone; the steps are then not to be trusted."""


def replay(env: TextEnvironment, episode: Episode) -> Replay:
    """Play the episode's executed actions again on ``env`` under its own seeds."""
    try:
        observation, _ = env.reset(
            seed=episode.instance_seed, options={"dynamics_seed": episode.dynamics_seed}
        )
    except OWN_FAILURES:  # it worked when the episode was recorded
        return Replay("", (), lucky=False, faithful=False)
    untouched = env.dynamics.bit_generator.state
    start = state = state_of(env, observation)
    steps: list[Step] = []
    faithful = True
    try:
        for number, turn in enumerate(episode.turns):
            for action in turn.executed:
                observation, _, _, _, info = env.step(action)
                after = state_of(env, observation)
                steps.append(Step(number, action, state, after, bool(info["effective"])))
                state = after
            faithful &= observation == turn.next_observation or not turn.executed
    except OWN_FAILURES:  # it ended earlier or failed otherwise than when it was recorded
        faithful = False
    return Replay(start, tuple(steps), env.dynamics.bit_generator.state != untouched, faithful)


def state_of(env: TextEnvironment, observation: str) -> Hashable:
    """What tells states apart: the lake or room itself, else the observation's text."""
    if isinstance(env, FrozenLake):
        return as_lake(env)
    if isinstance(env, Sokoban):
        return cast(Hashable, env.room)
    return observation

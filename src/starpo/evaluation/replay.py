"""A stored trajectory played again: what the environment did at every single action."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, ContractError, check_state
from starpo.environments.records import Step
from starpo.evaluation.trajectories import Episode


@dataclass(frozen=True)
class Replay:
    """A trajectory's steps in order."""

    steps: tuple[Step, ...]
    """Executed actions."""
    lucky: bool
    """The environment drew from its dynamics: another luck may give another end."""
    faithful: bool
    """Every turn ended in the observation that was stored. A False names an environment whose answers do not
    depend on its seeds and actions alone; the steps are then not to be trusted."""


def replay(env: TextEnvironment, episode: Episode) -> Replay:
    """Play the episode's executed actions again on ``env`` under its own seeds."""
    steps: list[Step] = []
    faithful, untouched = True, None
    try:
        observation, _ = env.reset(
            seed=episode.instance_seed, options={"dynamics_seed": episode.dynamics_seed}
        )
        untouched = env.dynamics.bit_generator.state
        state = state_of(env, observation)
        for number, turn in enumerate(episode.turns):
            for action in turn.executed:
                observation, _, _, _, info = env.step(action)
                after = state_of(env, observation)
                steps.append(Step(number, action, state, after, bool(info["effective"])))
                state = after
            faithful &= observation == turn.next_observation or not turn.executed
    except ContractError:
        raise
    except OWN_FAILURES:  # it ended earlier or failed otherwise than when it was recorded
        faithful = False
    lucky = untouched is not None and env.dynamics.bit_generator.state != untouched
    return Replay(tuple(steps), lucky, faithful)


def state_of(env: TextEnvironment, observation: str) -> Hashable:
    """What tells states apart: what the environment knows, else the observation's text."""
    known = check_state(env, env.state()) if env.knows("state") else None
    return observation if known is None else known

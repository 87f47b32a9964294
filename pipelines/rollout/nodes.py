"""Rollout: the policy plays, every turn is recorded."""

from __future__ import annotations

import pyarrow as pa

from starpo.config import AgentConfig, EngineConfig, EnvironmentConfig, RolloutConfig, RunConfig
from starpo.data.schemas import TURNS
from starpo.data.trajectory_table import trajectories_to_table
from starpo.environments.splits import Split
from starpo.learning.policy import Policy
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.host import EngineHost


def generate_rollouts(
    host: EngineHost,
    policy: Policy,
    run: RunConfig,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    engine: EngineConfig,
    rollout: RolloutConfig,
) -> pa.Table:
    """One iteration's trajectories on training instances; an empty table once the run has stopped."""
    if policy.manifest["status"] == "stopped":
        return TURNS.empty_table()
    serving = host.serve(policy, engine, agent)
    plan = RolloutPlan(
        environment=environment.name,
        arguments=environment.arguments,
        split=Split.TRAIN,
        stream=Split.TRAIN.value,
        seed=run.seed,
        iteration=policy.iteration,
        groups=rollout.groups,
        group_size=rollout.group_size,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
    )
    trajectories = play(serving.engine, plan, agent, serving.template)
    return trajectories_to_table(
        trajectories, policy_step=policy.step, temperature=rollout.temperature, top_p=rollout.top_p
    )

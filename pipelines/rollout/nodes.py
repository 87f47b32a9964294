"""Rollout: the policy plays, every turn is recorded."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from starpo.config.agent import AgentConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import GatesConfig
from starpo.config.reward import FilterConfig, RewardConfig
from starpo.config.rollout import EngineConfig, RolloutConfig
from starpo.config.run import RunConfig
from starpo.environments.splits import Split
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.host import EngineHost
from starpo.scoring.resampling import draw_until_enough
from starpo.scoring.scoring import mark_kept, score_rollouts
from starpo.store.policies import Policy
from starpo.store.schemas import turns_schema
from starpo.store.trajectory_table import trajectories_to_table


def generate_rollouts(
    host: EngineHost,
    policy: Policy,
    run: RunConfig,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    engine: EngineConfig,
    rollout: RolloutConfig,
    reward: RewardConfig,
    filter: FilterConfig,
    gates: GatesConfig,
) -> pa.Table:
    """One iteration's trajectories on training instances; an empty table once the run has stopped.

    With ``filter.resample`` they are scored and filtered at once, to see whether further groups are needed; the
    verdict that counts is that of the reward and filter nodes on the whole table, which is the same.
    """
    windowed = agent.context_turns is not None
    if policy.manifest["status"] == "stopped":
        return turns_schema(windowed=windowed).empty_table()
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
        mixture=tuple(environment.mixture or ()),
    )
    places = host.environments(environment, agent)

    def draw(number: int) -> pa.Table:
        trajectories = play(serving.engine, replace(plan, round=number), agent, serving.template, places)
        return trajectories_to_table(
            trajectories,
            policy_step=policy.step,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            windowed=windowed,
        )

    def judge(turns: pa.Table) -> pa.Table:
        return mark_kept(score_rollouts(turns, reward, gates, environment, run), filter, run.seed)

    return draw_until_enough(draw, judge, filter.resample)

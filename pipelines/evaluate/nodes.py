"""Evaluation on fixed prompts: play, measure between random play and the optimum, diagnose, compare."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa

from starpo.config.agent import AgentConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.evaluation import EvaluationConfig
from starpo.config.rollout import EngineConfig
from starpo.environments.contract import close
from starpo.environments.records import Limits
from starpo.environments.splits import Instance, Split
from starpo.evaluation.compare import compare
from starpo.evaluation.diagnosis import diagnose
from starpo.evaluation.metrics import summarise
from starpo.evaluation.prompts import fixed_prompts
from starpo.evaluation.reference import measured, on_scale, suite_reference
from starpo.evaluation.trajectories import read_trajectories
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.host import EngineHost
from starpo.rollout.isolated import EnvironmentBuilder
from starpo.store.label_table import labels_to_table
from starpo.store.policies import Policy
from starpo.store.trajectory_table import trajectories_to_table

logger = logging.getLogger(__name__)


def refer_suite(
    evaluation: EvaluationConfig, environment: EnvironmentConfig, agent: AgentConfig, *, suite: str
) -> dict[str, Any]:
    """Optimum and floor of the suite's prompts under the harness's limits; no policy is involved."""
    task = evaluation.task(suite, environment)
    limits = Limits(agent.max_turns, agent.max_actions_per_turn, agent.max_actions)
    instances = _instances(evaluation, environment, suite)
    build = EnvironmentBuilder(environment)
    return suite_reference(
        task.name, task.arguments, instances, limits, suite=suite, seed=evaluation.seed, build=build
    )


def play_suite(
    host: EngineHost,
    policy: Policy,
    evaluation: EvaluationConfig,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    engine: EngineConfig,
    *,
    suite: str,
    temperature: float,
) -> tuple[pa.Table, dict[str, list[float]]]:
    """Every turn of the policy on the suite's prompts at one temperature, and the turns' seconds by ``group.member``.

    Prompts, luck and sampling seeds are those of the suite, so two policies meet the same tasks.
    """
    prompts = evaluation.suites[suite]
    task = evaluation.task(suite, environment)
    serving = host.serve(policy, engine, agent)
    plan = RolloutPlan(
        environment=task.name,
        arguments=task.arguments,
        split=Split(prompts.split),
        stream=suite,
        seed=evaluation.seed,
        iteration=0,
        groups=prompts.prompts,
        instances=_instances(evaluation, environment, suite),
        group_size=evaluation.samples,
        temperature=temperature,
    )
    places = host.environments(environment, agent)
    trajectories = play(serving.engine, plan, agent, serving.template, places)
    table = trajectories_to_table(
        trajectories,
        policy_step=policy.step,
        temperature=temperature,
        top_p=1.0,
        windowed=agent.context_turns is not None,
    )
    seconds = {f"{each.address.group}.{each.address.member}": each.seconds for each in trajectories}
    return table, seconds


def judge_policy(
    turns: pa.Table,
    reference: dict[str, Any],
    policy: Policy,
    evaluation: EvaluationConfig,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    *,
    suite: str,
    temperature: float,
) -> tuple[dict[str, Any], pa.Table]:
    """The suite's summary, and a label for every failed trajectory."""
    trajectories = read_trajectories(turns)
    task = evaluation.task(suite, environment)
    numbers = summarise(turns)
    measures = measured(trajectories, reference)
    env = EnvironmentBuilder(environment)(task.name, **task.arguments)
    diagnosis = diagnose(env, trajectories, seed=evaluation.seed)
    close(env)
    harness_changed = policy.harness()["agent"] != agent.model_dump(mode="json")
    if harness_changed:
        logger.warning("%s is evaluated under another harness than it was trained with", policy.identity)
    summary = {
        **numbers,
        **measures,
        **on_scale(numbers, measures),
        **diagnosis.metrics,
        "suite": suite,
        "temperature": temperature,
        "policy_step": policy.step,
        "iteration": policy.iteration,
        "harness_changed": harness_changed,
    }
    return summary, labels_to_table(diagnosis.labels, trajectories.suite)


def compare_policies(
    *tables: pa.Table, labels: list[tuple[str, float]], between: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Two policies per suite and temperature; ``tables`` come as (before, after) pairs.

    ``between`` names the two where they are not the first and the last of one run.
    """
    pairs = zip(tables[::2], tables[1::2], labels, strict=True)
    compared = [
        {"suite": suite, "temperature": temperature} | compare(before, after)
        for before, after, (suite, temperature) in pairs
    ]
    return {"comparisons": compared} | ({} if between is None else {"between": list(between)})


def gather_summaries(*summaries: dict[str, Any], policy: str) -> dict[str, Any]:
    """All suites of one policy in one place, for the table at the end."""
    return {"policy": policy, "evaluations": list(summaries)}


def _instances(
    evaluation: EvaluationConfig, environment: EnvironmentConfig, suite: str
) -> tuple[Instance, ...]:
    prompts, task = evaluation.suites[suite], evaluation.task(suite, environment)
    return fixed_prompts(
        task.name,
        task.arguments,
        split=Split(prompts.split),
        seed=evaluation.seed,
        prompts=prompts.prompts,
        build=EnvironmentBuilder(environment),
    )

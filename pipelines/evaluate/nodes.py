"""Evaluation on fixed prompts, and the comparison of two policies on the same ones."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa

from starpo.config import AgentConfig, EngineConfig, EnvironmentConfig, EvaluationConfig
from starpo.data.trajectory_table import trajectories_to_table
from starpo.environments.splits import Split
from starpo.evaluation.compare import compare
from starpo.evaluation.metrics import summarise
from starpo.learning.policy import Policy
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.host import EngineHost

logger = logging.getLogger(__name__)


def evaluate_policy(
    host: EngineHost,
    policy: Policy,
    evaluation: EvaluationConfig,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    engine: EngineConfig,
    *,
    suite: str,
    temperature: float,
) -> tuple[pa.Table, dict[str, Any]]:
    """Every turn on the suite's prompts at one temperature, and their summary.

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
        group_size=evaluation.samples,
        temperature=temperature,
    )
    trajectories = play(serving.engine, plan, agent, serving.template)
    table = trajectories_to_table(trajectories, policy_step=policy.step, temperature=temperature, top_p=1.0)
    harness_changed = policy.harness()["agent"] != agent.model_dump(mode="json")
    if harness_changed:
        logger.warning("%s is evaluated under another harness than it was trained with", policy.identity)
    summary = summarise(table) | {
        "suite": suite,
        "temperature": temperature,
        "policy_step": policy.step,
        "iteration": policy.iteration,
        "harness_changed": harness_changed,
    }
    return table, summary


def compare_policies(*tables: pa.Table, labels: list[tuple[str, float]]) -> dict[str, Any]:
    """First against last policy per suite and temperature; ``tables`` come as (before, after) pairs."""
    pairs = zip(tables[::2], tables[1::2], labels, strict=True)
    return {
        "comparisons": [
            {"suite": suite, "temperature": temperature} | compare(before, after)
            for before, after, (suite, temperature) in pairs
        ]
    }

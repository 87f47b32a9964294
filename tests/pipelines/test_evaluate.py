"""The nodes of an evaluation, called without an engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from builders import LAKE, agent

from starpo.config.environment import EnvironmentConfig
from starpo.config.evaluation import EvaluationConfig
from starpo.environments.registry import make
from starpo.environments.solvers import optimal_actions
from starpo.evaluation.glossary import DIAGNOSIS, MEASURED, METRICS, own_failures
from starpo.gates.rules import check_table
from starpo.pipelines.evaluate.nodes import gather_summaries, judge_policy, refer_suite
from starpo.store.label_table import labels_to_table
from starpo.store.policies import Policy
from starpo.store.schemas import LABELS, TURNS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "evaluation"))
from played import play

EVALUATION = EvaluationConfig(
    every=1,
    periodic=[],
    final=["test"],
    suites={"test": {"prompts": 12}, "rooms": {"environment": "sokoban", "prompts": 12}},
)
PLACES = {"suite", "temperature", "policy_step", "iteration", "harness_changed"}


def turns(environment: EnvironmentConfig, suite: str, seeds: list[int]) -> pa.Table:
    """Even prompts are solved in one turn, odd ones say nothing."""
    env, rows = make(environment.name, **environment.arguments), []
    for group, seed in enumerate(seeds):
        env.reset(seed=seed)
        plan = [] if group % 2 else optimal_actions(env)
        rows += play(env, [plan], group=group, instance_seed=seed, stream=suite, environment=environment.name)
    return pa.Table.from_pylist(rows, schema=TURNS)


@pytest.mark.parametrize("suite", ["test", "rooms"])
def test_a_suite_is_measured_and_every_failure_labelled(suite: str, tiny_policy: Policy) -> None:
    training = EnvironmentConfig(name="frozen_lake_no_slip", arguments=LAKE.arguments)
    harness = agent(max_turns=5, max_actions_per_turn=5, max_actions=10)
    reference = refer_suite(EVALUATION, training, harness, suite=suite)
    task = EVALUATION.task(suite, training)
    played = turns(task, suite, reference["prompts"]["instance_seed"])
    summary, labels = judge_policy(
        played, reference, tiny_policy, EVALUATION, training, harness, suite=suite, temperature=0.5
    )
    assert summary["success"] == summary["success_of_optimum"] == 0.5
    assert summary["optimum_success"] == 1
    assert summary["failures.format"] == 0.5
    assert summary["luck_failed_share"] == 0
    assert summary["harness_changed"], "this is not the harness of the tiny policy"
    names = {key.removesuffix("_low").removesuffix("_high") for key in summary}
    known = METRICS.keys() | MEASURED.keys() | DIAGNOSIS.keys() | own_failures().keys() | PLACES
    assert {name for name in names if not name.startswith("pass_at_")} <= known
    assert labels.schema == LABELS
    assert check_table(labels, "labels") is None
    assert labels["group"].to_pylist() == list(range(1, 12, 2))
    assert set(labels["stream"].to_pylist()) == {suite}
    gathered = gather_summaries(summary, policy="run@0001")
    assert gathered == {"policy": "run@0001", "evaluations": [summary]}


def test_a_trajectory_labelled_twice_is_refused() -> None:
    row = {"group": 3, "member": 0, "label": "loop", "turn": 1}
    suite = {"iteration": 0, "policy_step": 0, "environment": "lake", "split": "test", "stream": "test"}
    table = labels_to_table([row, row], suite)
    assert "no two rows have the same group and member" in str(check_table(table, "labels"))

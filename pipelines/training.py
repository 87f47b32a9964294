"""A training run: the same small pipeline of one iteration, unrolled N times.

base policy -> policy_0000
iteration i: policy_i -> rollouts -> returns -> scored -> policy_i+1
every k iterations: policy_i -> periodic evaluation; at both ends: the final suites, compared
"""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.evaluation import EvaluationConfig
from starpo.config.resolved import Resolved
from starpo.pipelines.base_policy.nodes import import_policy
from starpo.pipelines.base_policy.pipeline import create_pipeline as base_policy_pipeline
from starpo.pipelines.evaluate.pipeline import (
    comparison_stage,
    evaluation_stage,
    reference_stage,
)
from starpo.pipelines.reward.pipeline import reward_stage
from starpo.pipelines.rollout.pipeline import rollout_stage
from starpo.pipelines.update.pipeline import update_stage
from starpo.store.layout import Played, comparison_name, iteration_name, policy_name


def training_pipeline(resolved: Resolved, iterations: int | None = None) -> Pipeline:
    """All iterations that the parameters ask for, or the first ``iterations`` of them.

    Built in one ``Pipeline``: summing 200 of them takes minutes.
    """
    parameters = resolved.parameters
    count, evaluation = iterations or parameters.run.iterations, parameters.evaluation
    initial = "base_policy" if parameters.run.fork_from is None else "fork_policy"
    first = Node(import_policy, inputs=[initial, "params:run"], outputs=policy_name(0), name="import_policy")
    parts: list[Pipeline | Node] = [first, _comparison(evaluation, count)]
    if parameters.run.fork_from is None:
        parts.append(base_policy_pipeline(resolved))
    suites: dict[str, None] = {}
    for iteration in range(count + 1):
        due = _due(evaluation, iteration, count)
        suites |= dict.fromkeys(played.suite for played in due)
        parts += [evaluation_stage(played, iteration, policy_name(iteration)) for played in due]
        if iteration < count:
            parts.append(_iteration(iteration, [f"{played.entry(iteration)}.summary" for played in due]))
    return Pipeline([*parts, reference_stage(suites)])


def _due(evaluation: EvaluationConfig, iteration: int, count: int) -> list[Played]:
    """What is played at ``iteration``."""
    due = []
    if iteration % evaluation.every == 0 or iteration == count:
        due += [Played(suite, evaluation.temperatures[0]) for suite in evaluation.periodic]
    if iteration in {0, count}:
        due += [Played(suite, t) for suite in evaluation.final for t in evaluation.temperatures]
    return list(dict.fromkeys(due))


def _iteration(iteration: int, evaluations: list[str]) -> Pipeline:
    shared = {"engine": "engine", "learner": "learner", "policy": policy_name(iteration)}
    evaluated = {f"evaluated_{number}": name for number, name in enumerate(evaluations)}
    return pipeline(
        [rollout_stage(), reward_stage(), update_stage(len(evaluations))],
        inputs={**shared, **evaluated},
        outputs={"next_policy": policy_name(iteration + 1)},
        parameters={
            f"params:{section}": f"params:{section}"
            for section in (
                "run",
                "environment",
                "agent",
                "engine",
                "rollout",
                "reward",
                "filter",
                "gates",
                "algorithm",
                "learner",
                "monitor",
            )
        },
        namespace=iteration_name(iteration),
    )


def _comparison(evaluation: EvaluationConfig, count: int) -> Pipeline:
    finals = [Played(suite, t) for suite in evaluation.final for t in evaluation.temperatures]
    both = {(each.suite, each.temperature): (each.entry(0), each.entry(count)) for each in finals}
    return comparison_stage(both, comparison_name(count))

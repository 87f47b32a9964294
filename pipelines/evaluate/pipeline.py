"""Evaluation as a stage."""

from __future__ import annotations

from functools import partial, update_wrapper

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.parameters import current_parameters
from starpo.pipelines.evaluate.nodes import evaluate_policy


def evaluation_name(suite: str, temperature: float, iteration: int | str) -> str:
    """Namespace of one evaluation: catalog names without ``.turns`` or ``.summary``."""
    step = f"{iteration:04d}" if isinstance(iteration, int) else iteration
    return f"evaluation__{suite}__t{str(float(temperature)).replace('.', '_')}__{step}"


def evaluation_stage(suite: str, temperature: float, iteration: int | str, policy: str) -> Pipeline:
    """One suite at one temperature: policy -> turns, summary."""
    function = update_wrapper(partial(evaluate_policy, suite=suite, temperature=temperature), evaluate_policy)
    node = Node(
        function,
        inputs=[
            "engine",
            "policy",
            "params:evaluation",
            "params:environment",
            "params:agent",
            "params:engine",
        ],
        outputs=["turns", "summary"],
        name="evaluate",
    )
    return pipeline(
        [node],
        inputs={"engine": "engine", "policy": policy},
        parameters={
            f"params:{name}": f"params:{name}" for name in ("evaluation", "environment", "agent", "engine")
        },
        namespace=evaluation_name(suite, temperature, iteration),
    )


def create_pipeline(**kwargs: object) -> Pipeline:
    """The stage alone: the final suites at every temperature, on the policy that ``run.source`` names."""
    evaluation = current_parameters().evaluation
    return Pipeline(
        [
            evaluation_stage(suite, temperature, "source", "source_policy")
            for suite in evaluation.final
            for temperature in evaluation.temperatures
        ]
    )

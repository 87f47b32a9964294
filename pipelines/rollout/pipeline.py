"""Rollout as a stage."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.resolved import Resolved
from starpo.pipelines.rollout.nodes import generate_rollouts


def rollout_stage() -> Pipeline:
    """engine, policy -> rollouts."""
    return Pipeline(
        [
            Node(
                generate_rollouts,
                inputs=[
                    "engine",
                    "policy",
                    "params:run",
                    "params:environment",
                    "params:agent",
                    "params:engine",
                    "params:rollout",
                    "params:reward",
                    "params:filter",
                    "params:gates",
                ],
                outputs="rollouts",
                name="rollout",
            )
        ]
    )


def create_pipeline(_: Resolved) -> Pipeline:
    """The stage alone: on the policy that ``run.source`` names."""
    return pipeline(
        rollout_stage(), inputs={"policy": "source_policy"}, outputs={"rollouts": "stage_rollouts"}
    )

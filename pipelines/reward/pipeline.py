"""Reward and filter as one stage."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.resolved import Resolved
from starpo.pipelines.reward.nodes import filter_groups, score_trajectories


def reward_stage() -> Pipeline:
    """rollouts -> returns -> scored."""
    return Pipeline(
        [
            Node(
                score_trajectories,
                inputs=["rollouts", "params:reward", "params:gates", "params:environment", "params:run"],
                outputs="returns",
                name="reward",
            ),
            Node(
                filter_groups,
                inputs=["returns", "params:filter", "params:run"],
                outputs="scored",
                name="filter",
            ),
        ]
    )


def create_pipeline(_: Resolved) -> Pipeline:
    """The stage alone: scores the rollouts that ``run.source`` names."""
    return pipeline(
        reward_stage(), inputs={"rollouts": "source_rollouts"}, outputs={"scored": "stage_scored"}
    )

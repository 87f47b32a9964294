"""Update as a stage."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.resolved import Resolved
from starpo.pipelines.update.nodes import update_policy


def update_stage(evaluations: int = 0) -> Pipeline:
    """policy, rollouts, scored -> updates, metrics, next_policy.

    In this order: what an update leaves beside its policy can be made again only from the learner state before it,
    which the next policy replaces.

    Waits for ``evaluations`` summaries of the same policy, inputs ``evaluated_0``, ``evaluated_1``, …
    """
    return Pipeline(
        [
            Node(
                update_policy,
                inputs=[
                    "engine",
                    "learner",
                    "policy",
                    "rollouts",
                    "scored",
                    "params:run",
                    "params:agent",
                    "params:engine",
                    "params:rollout",
                    "params:algorithm",
                    "params:learner",
                    "params:monitor",
                    *(f"evaluated_{number}" for number in range(evaluations)),
                ],
                outputs=["updates", "metrics", "next_policy"],
                name="update",
            )
        ]
    )


def create_pipeline(_: Resolved) -> Pipeline:
    """The stage alone: one update from the policy, rollouts and scores that ``run.source`` names."""
    return pipeline(
        update_stage(),
        inputs={"policy": "source_policy", "rollouts": "source_rollouts", "scored": "source_scored"},
        outputs={"next_policy": "stage_next_policy", "updates": "stage_updates", "metrics": "stage_metrics"},
    )

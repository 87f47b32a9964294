"""The base policy, shared by all runs with the same environment and harness."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from starpo.config.resolved import Resolved
from starpo.pipelines.base_policy.nodes import make_base_policy


def create_pipeline(_: Resolved) -> Pipeline:
    """params -> base_policy."""
    return Pipeline(
        [
            Node(
                make_base_policy,
                inputs=["params:base_policy", "params:environment", "params:agent"],
                outputs="base_policy",
                name="make_base_policy",
            )
        ]
    )

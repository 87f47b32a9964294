"""Stored rollouts of a whole run -> scored anew under another name -> compared with what the run made of them."""

from __future__ import annotations

from pathlib import Path

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.resolved import Resolved, Source
from starpo.errors import UserError
from starpo.pipelines.rescore.nodes import compare_scorings
from starpo.pipelines.reward.pipeline import reward_stage
from starpo.store.layout import Layer, RunPaths, iteration_name


def create_pipeline(resolved: Resolved) -> Pipeline:
    """All iterations of ``run.source``'s run up to the one that it names; by default its last.

    Viewers, which ask for all pipelines without naming a source, get the first iteration.
    """
    source = resolved.source
    iterations = [0] if source is None else _stored(source)
    names = ("params:reward", "params:gates", "params:environment", "params:filter", "params:run")
    shared = {name: name for name in names}
    parts: list[Pipeline | Node] = [
        pipeline(
            reward_stage(),
            inputs={"rollouts": f"source_{iteration_name(number)}.rollouts"},
            parameters=shared,
            namespace=iteration_name(number),
        )
        for number in iterations
    ]
    before = {f"before_{number:04d}": f"source_{iteration_name(number)}.scored" for number in iterations}
    after = {f"after_{number:04d}": f"{iteration_name(number)}.scored" for number in iterations}
    parts.append(Node(compare_scorings, inputs=before | after, outputs="rescoring", name="compare_scorings"))
    return Pipeline(parts)


def _stored(source: Source) -> list[int]:
    """Iterations with rollouts and scores, rising."""
    paths = RunPaths(Path(), source.run)
    scored = paths.tables(Layer.SCORED)
    found = [n for n in paths.tables(Layer.ROLLOUTS) if n in scored and n <= source.iteration]
    if not found:
        raise UserError(
            f"run.source = {str(source)!r}: the run has no iteration with both rollouts and scores up to that one; "
            "see `starpo runs list`"
        )
    return found

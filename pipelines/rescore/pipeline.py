"""Stored rollouts of a whole run -> scored anew under another name -> compared with what the run made of them."""

from __future__ import annotations

from pathlib import Path

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.app.parameters import current
from starpo.errors import UserError
from starpo.pipelines.rescore.nodes import compare_scorings
from starpo.pipelines.reward.pipeline import reward_stage
from starpo.store.layout import ROLLOUTS, SCORED, Source


def create_pipeline(**kwargs: object) -> Pipeline:
    """All iterations of ``run.source``'s run up to the one that it names; by default its last.

    Viewers, which ask for all pipelines without naming a source, get the first iteration.
    """
    source = current().source
    iterations = ["0000"] if source is None else _stored(source)
    names = ("params:reward", "params:gates", "params:environment", "params:filter", "params:run")
    shared = {name: name for name in names}
    parts: list[Pipeline | Node] = [
        pipeline(
            reward_stage(),
            inputs={"rollouts": f"source_iter_{number}.rollouts"},
            parameters=shared,
            namespace=f"iter_{number}",
        )
        for number in iterations
    ]
    before = {f"before_{number}": f"source_iter_{number}.scored" for number in iterations}
    after = {f"after_{number}": f"iter_{number}.scored" for number in iterations}
    parts.append(Node(compare_scorings, inputs=before | after, outputs="rescoring", name="compare_scorings"))
    return Pipeline(parts)


def _stored(source: Source) -> list[str]:
    """Iterations with rollouts and scores, rising."""
    played, scored = (
        {path.stem.removeprefix("iter_") for path in (Path(layer) / source.run).glob("iter_*.parquet")}
        for layer in (ROLLOUTS, SCORED)
    )
    found = [number for number in sorted(played & scored, key=int) if int(number) <= source.iteration]
    if not found:
        raise UserError(
            f"run.source = {str(source)!r}: the run has no iteration with both rollouts and scores up to that one; "
            "see `starpo runs list`"
        )
    return found

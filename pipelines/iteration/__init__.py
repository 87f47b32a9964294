"""The first iteration alone: what `kedro viz` can draw of a training run."""

from functools import partial

from starpo.pipelines.training import training_pipeline

create_pipeline = partial(training_pipeline, iterations=1)

__all__ = ["create_pipeline"]

"""All promised pipelines by name; ``kedro run --pipeline=X`` imports only what X needs."""

from __future__ import annotations

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline


def register_pipelines() -> dict[str, Pipeline]:
    """Pipelines found in ``pipelines/``; the default, which viewers open, is one iteration of training.

    ``kedro run`` without a name runs ``train_starpo_s``.
    """
    found = find_pipelines(raise_errors=True)
    found["__default__"] = found.get("iteration", Pipeline([]))
    return found

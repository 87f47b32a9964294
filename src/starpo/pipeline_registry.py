"""All promised pipelines by name; ``kedro run --pipeline=X`` imports only what X needs."""

from __future__ import annotations

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline


def register_pipelines() -> dict[str, Pipeline]:
    """Pipelines found in ``pipelines/``; the default is the main job."""
    found = find_pipelines(raise_errors=True)
    found.setdefault("__default__", Pipeline([]))
    if "train_starpo_s" in found:
        found["__default__"] = found["train_starpo_s"]
    return found

"""All promised pipelines by name; ``kedro run --pipeline=X`` imports only what X needs."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from kedro.pipeline import Pipeline

from starpo.app.kedro_internals import requested_pipelines
from starpo.app.parameters import configured_parameters
from starpo.settings import parameters


def register_pipelines() -> dict[str, Pipeline]:
    """The requested pipelines, or all in ``pipelines/``; the default, which viewers open, is one iteration.

    ``kedro run`` without a name runs ``train_starpo_s``.
    """
    # Kedro asks without a way to pass the command's parameters; its hook has them.
    resolved = parameters.resolved or configured_parameters()
    package = import_module("starpo.pipelines")
    known = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    requested = requested_pipelines()
    found = {
        name: import_module(f"starpo.pipelines.{name}").create_pipeline(resolved)
        for name in known
        if requested is None or "__default__" in requested or name in requested
    }
    found["__default__"] = found.get("iteration", Pipeline([]))
    return found

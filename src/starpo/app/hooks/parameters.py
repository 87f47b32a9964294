"""The parameters of a Kedro command: preset and ``--params`` merged, checked and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedro.framework.hooks import hook_impl
from omegaconf import OmegaConf

from starpo.app.kedro_internals import requested_pipelines, runtime_parameters
from starpo.app.parameters import resolve_parameters
from starpo.config.resolved import Resolved
from starpo.errors import UserError


class ParametersHooks:
    """Gives nodes and catalog the resolved parameters."""

    def __init__(self) -> None:
        self.resolved: Resolved | None = None
        """What the present command works with, once its context is there."""

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Merge preset and ``--params``, validate, and answer ``${run:…}`` and ``${command:}`` in the catalog."""
        requested = requested_pipelines() or []
        if len(requested) > 1:
            raise UserError(f"one pipeline at a time, not {', '.join(requested)}: each has a run of its own")
        loader = context.config_loader
        runtime = runtime_parameters(context)
        # Kedro would merge --params below the preset, and before we can see which names they change.
        merged, loader.runtime_params = loader.runtime_params, {}
        raw = dict(loader["parameters"])
        loader.runtime_params = merged
        self.resolved = resolved = resolve_parameters(
            raw,
            requested[0] if requested else "train_starpo_s",
            runtime,
            Path(context.project_path),
            context.env,
        )
        context.config_loader["parameters"] = resolved.raw
        OmegaConf.register_new_resolver("run", lambda key: resolved.names[key], replace=True)
        OmegaConf.register_new_resolver("command", lambda: resolved, replace=True)

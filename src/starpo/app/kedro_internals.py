"""What this project needs of Kedro beyond its public interface, written for Kedro 1.7."""

from __future__ import annotations

from typing import Any

from kedro.config import OmegaConfigLoader
from kedro.framework.cli.utils import _split_params as split_params
from kedro.framework.project import pipelines

__all__ = ["MergingLoader", "requested_pipelines", "runtime_parameters", "split_params"]


def requested_pipelines() -> list[str] | None:
    """Names after ``--pipeline``; None where a command asks for all."""
    requested = pipelines._requested_pipelines
    return None if requested is None else list(requested)


def runtime_parameters(context: Any) -> dict[str, Any]:
    """What came by ``--params``."""
    return dict(context._runtime_params or {})


class MergingLoader(OmegaConfigLoader):
    """Kedro's loader, whose subclass says how the folders of ``conf/`` are laid over one another."""

    def merged(self, config: dict[str, Any], over: dict[str, Any], key: str, folder: str) -> dict[str, Any]:
        """The settings ``over`` of a folder laid over ``config``, as configured (``merge_strategy``)."""
        return super()._merge_configs(config, over, key, folder)

    def merged_softly(self, config: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
        """The same under the strategy ``soft``, which the parameters have."""
        return super()._soft_merge(config, over)

    def _merge_configs(
        self, config: dict[str, Any], env_config: dict[str, Any], key: str, env_path: str
    ) -> dict[str, Any]:
        return self.merged(config, env_config, key, env_path)

    def _soft_merge(  # type: ignore[override]
        self, config: dict[str, Any], env_config: dict[str, Any], env_path: str | None = None
    ) -> dict[str, Any]:
        return self.merged_softly(config, env_config)

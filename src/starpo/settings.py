"""Kedro settings."""

import warnings

from starpo.hooks import MetricsHooks, RunHooks

# Kedro warns of dots in dataset names, which its own namespaces made, wherever one iteration refers to another.
warnings.filterwarnings("ignore", message="One or more dataset names contain")

HOOKS = (RunHooks(), MetricsHooks())
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)
CONF_SOURCE = "conf"
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    "merge_strategy": {"parameters": "soft"},
}

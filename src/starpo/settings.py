"""Kedro settings."""

from starpo.hooks import MetricsHooks, RunHooks

HOOKS = (RunHooks(), MetricsHooks())
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)
CONF_SOURCE = "conf"
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    "merge_strategy": {"parameters": "soft"},
}

"""Kedro settings."""

import warnings

from starpo.app.config_loader import ConfigLoader
from starpo.app.hooks.clock import ClockHooks
from starpo.app.hooks.gates import GateHooks
from starpo.app.hooks.mirror import MirrorHooks
from starpo.app.hooks.native_output import NativeOutputHooks
from starpo.app.hooks.parameters import ParametersHooks
from starpo.app.hooks.retention import RetentionHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.app.hooks.terminal import TerminalHooks
from starpo.app.hooks.watchdog import WatchdogHooks

# Kedro warns of dots in dataset names, which its own namespaces made, wherever one iteration refers to another.
warnings.filterwarnings("ignore", message="One or more dataset names contain")

parameters = ParametersHooks()
run = RunRecordHooks(parameters)
clock = ClockHooks(run)

# In the order in which they are called (a run begins before it is timed, its tables are printed before its MLflow
# run ends); Kedro itself calls the last one first.
HOOKS = tuple(
    reversed(
        (
            parameters,
            run,
            NativeOutputHooks(run),
            clock,
            WatchdogHooks(run),
            TerminalHooks(run, clock),
            GateHooks(run),
            MirrorHooks(run, clock),
            RetentionHooks(run),
        )
    )
)
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)
CONF_SOURCE = "conf"
CONFIG_LOADER_CLASS = ConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    "merge_strategy": {"parameters": "soft"},
}

"""Which metrics of an iteration the Echo Trap monitor can watch."""

from __future__ import annotations

import difflib

from starpo.config.environment import EnvironmentConfig
from starpo.config.monitor import MonitorConfig
from starpo.errors import UserError
from starpo.monitor.glossary import ROLLOUT, UPDATE

#: Measured after the monitor has looked.
TOO_LATE = frozenset({"sync_difference"})

#: Stands in the glossary for each environment of a mixture.
EACH = "<environment>"


def watchable(environment: EnvironmentConfig) -> list[str]:
    """Names of the metrics of rollouts and updates; those per environment where there are several.

    >>> [name for name in watchable(EnvironmentConfig(name="bandit")) if name.startswith("success")]
    ['success', 'success_error']
    """
    labels = [member.known_as for member in environment.members]
    names = [name for name in (*ROLLOUT, *UPDATE) if name not in TOO_LATE]
    return [
        own
        for name in names
        for own in (
            [name.replace(EACH, label) for label in labels if len(labels) > 1] if EACH in name else [name]
        )
    ]


def check_indicators(monitor: MonitorConfig, environment: EnvironmentConfig) -> None:
    """Raise ``UserError`` where an indicator watches what no iteration has: it would never warn."""
    known = watchable(environment)
    for name, threshold in monitor.indicators.items():
        metric = threshold.metric or name
        if metric not in known:
            key = f"monitor.indicators.{name}" + (".metric" if threshold.metric else "")
            near = difflib.get_close_matches(metric, known, n=3, cutoff=0.5)
            raise UserError(
                f"{key}: the monitor can watch no metric {metric!r} of an iteration; "
                + (f"near it: {', '.join(near)}; " if near else "")
                + "all of rollouts and updates are in docs/metrics.md. Correct the name, or switch the indicator off "
                f"with monitor.indicators.{name}=null"
            )

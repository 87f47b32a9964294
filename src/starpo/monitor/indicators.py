"""Which metrics of an iteration the Echo Trap monitor can watch."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from starpo.config.environment import EnvironmentConfig
from starpo.config.monitor import MonitorConfig
from starpo.errors import UserError
from starpo.monitor.glossary import ROLLOUT, UPDATE

#: Measured after the monitor has looked.
TOO_LATE = frozenset({"sync_difference"})

#: Stand in the glossary for each environment of a mixture, and for each reward term.
EACH, TERM = "<environment>", "<term>"


def watchable(environment: EnvironmentConfig, terms: Collection[str] = ()) -> list[str]:
    """Names of the metrics of rollouts and updates; those per environment where there are several, those per term of
    the ``terms`` whose values are told apart.

    >>> [name for name in watchable(EnvironmentConfig(name="bandit")) if name.startswith("success")]
    ['success', 'success_error']
    """
    labels = [member.known_as for member in environment.members]
    several = {EACH: labels if len(labels) > 1 else [], TERM: sorted(terms)}
    found = []
    for name in (*ROLLOUT, *UPDATE):
        mark = next((mark for mark in several if mark in name), None)
        if name not in TOO_LATE:
            found += [name] if mark is None else [name.replace(mark, each) for each in several[mark]]
    return found


def check_indicators(
    monitor: MonitorConfig, environment: EnvironmentConfig, terms: Collection[str] = ()
) -> None:
    """Raise ``UserError`` where an indicator watches what no iteration has: it would never warn."""
    known = watchable(environment, terms)
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

"""Signs of life: what works says so after each part, and whoever watches sees how long it has been silent.

A part is an engine step, a micro-batch, or the begin or end of a node.
"""

from __future__ import annotations

import time

_last = time.monotonic()


def beat() -> None:
    """A part of the work is done."""
    global _last  # noqa: PLW0603 - one process, one sign of life
    _last = time.monotonic()


def silent_seconds() -> float:
    """Seconds since the last part was done."""
    return time.monotonic() - _last

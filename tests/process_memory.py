"""Memory of this process as the kernel accounts it.

``resource.getrusage`` will not do: what it calls the largest resident size of a process begins with that of the
process which started it, so a large parent hides what its child needs.
"""

from __future__ import annotations

from pathlib import Path


def resident_bytes() -> int:
    """Resident now."""
    return _field("VmRSS")


def peak_bytes() -> int:
    """The most that was ever resident."""
    return _field("VmHWM")


def _field(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

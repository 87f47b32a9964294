"""The sign of life of a process that works on a run: a file that it touches, which other machines can see."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

BEAT_SECONDS = 10.0
"""Between two signs of life."""
SILENT_SECONDS = 90.0
"""A process of another machine that was silent for so long is taken to be gone."""


class Lease:
    """Held by the process that works on a run, from ``begin`` to ``end``."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def begin(self) -> None:
        """Give the first sign of life, and one every ``BEAT_SECONDS`` from now on."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()
        self._thread.start()

    def end(self) -> None:
        """Nobody works on the run any more."""
        self._ended.set()
        self._thread.join()
        self._file.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):  # a folder that cannot be written for a moment
                self._file.touch()


def silent_seconds(file: Path) -> float | None:
    """Seconds since the last sign of life; None: no process holds the lease."""
    try:
        return max(0.0, time.time() - file.stat().st_mtime)
    except FileNotFoundError:
        return None

"""A thread that ends the process when its work shows no sign of life for too long."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from starpo.heartbeat import silent_seconds

#: Exit status of a process that hung: ``EX_TEMPFAIL``, try again.
HUNG: Final = 75
#: Looks per limit: a hang is noticed at most a twentieth of it late.
LOOKS: Final = 20


class Watchdog:
    """Calls ``last_words(seconds)`` and ends the process, once it was silent for ``limit`` seconds.

    Nothing else could end it: what hangs may be anywhere, in a library or in a user's code, and takes no exception.
    """

    def __init__(self, limit: float, last_words: Callable[[float], None]) -> None:
        self._limit, self._last_words = limit, last_words
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._limit / LOOKS):
            seconds = silent_seconds()
            if seconds > self._limit:
                try:
                    self._last_words(seconds)
                finally:
                    os._exit(HUNG)

"""What a worker was doing is read whole or not at all."""

from __future__ import annotations

import tempfile
import time

from starpo.rollout import call_progress


def test_the_last_call_is_read_back_and_one_that_is_being_written_is_not() -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        assert call_progress.read(file.fileno()) is None
        before = time.monotonic()
        call_progress.write(file.fileno(), 3, "step", {"observation": "long" * 50})
        call_progress.write(file.fileno(), 4, "reset", None)
        last = call_progress.read(file.fileno())
        assert last is not None
        assert (last.request, last.what, last.partial) == (4, "reset", None)
        assert before <= last.began <= time.monotonic()
        file.seek(20)
        file.write(b"?")
        assert call_progress.read(file.fileno()) is None

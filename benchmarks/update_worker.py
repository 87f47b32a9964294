"""One contender of ``update.py`` in its own process: takes orders on standard input, answers with measurements."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from update_batch import RaggedBatch


class Contender(Protocol):
    """A way to do an actor's step."""

    def splits(self, batch: RaggedBatch) -> list[Any]:
        """Ways to cut ``batch`` into passes; the fastest one is measured."""

    def step(self, batch: RaggedBatch, split: Any) -> dict[str, Any]:
        """Forward, loss and backward, and what is worth reporting of it."""


def memory(field: str) -> int:
    """Bytes, from the kernel's account of this process: ``VmRSS`` now, ``VmHWM`` the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def measured(contender: Contender, batch: RaggedBatch, split: Any) -> dict[str, Any]:
    """Processor seconds, wall seconds and peak memory of one step."""
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the present
    cpu, wall = time.process_time(), time.perf_counter()
    report = contender.step(batch, split)
    return {
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "peak_bytes": memory("VmHWM"),
    } | report


def serve(build: Callable[[str], Contender]) -> None:
    """Answer orders until standard input ends. Whatever the libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    contender = build(sys.argv[1])
    at_rest = memory("VmRSS")
    answer({"at_rest_bytes": at_rest})
    for line in sys.stdin:
        order = json.loads(line)
        if "batch" in order:
            batch = RaggedBatch.load(Path(order["batch"]))
            trials = []
            for split in contender.splits(batch):
                measured(contender, batch, split)  # the first pays for allocations
                trials.append((measured(contender, batch, split)["cpu_seconds"], split))
            best = min(trials)[1]
            answer({"split": str(best)})
        else:
            answer(measured(contender, batch, best))

"""Rooms and steps per second of processor time, beside their peers on the same machine in the same minutes.

Ours and the peer's worker take turns, so that whatever else the machine does falls on both; the ratio is the
median over repetitions of (our rate / the peer's rate of the same repetition). Exits with status 1 if a ratio
is below the floor we promise.

    make bench-environments
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
PEER_PYTHON = HERE / ".venv-environments/bin/python"
REPETITIONS = 7


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    """What is compared."""
    job: str
    """Function of both workers."""
    arguments: dict[str, Any]
    """Arguments of the function on both sides."""
    sizes: dict[str, tuple[int, int]]
    """Amount argument -> (ours, the peer's): rates compare, and the slower side need not take minutes."""
    floor: float | None
    """Smallest ratio that we promise; None: for information."""


ROWS = (
    Row("Sokoban rooms, 6x6, one box", "rooms", {"size": "6x6"}, {"count": (1000, 60)}, 10),
    Row("Sokoban rooms, 8x8, two boxes", "rooms", {"size": "8x8"}, {"count": (500, 15)}, 10),
    Row(
        "Sokoban steps, 6x6, peer without its image",
        "sokoban_steps",
        {"size": "6x6", "image": False},
        {"episodes": (300, 40)},
        20,
    ),
    Row(
        "Sokoban steps, 8x8, peer without its image",
        "sokoban_steps",
        {"size": "8x8", "image": False},
        {"episodes": (300, 15)},
        20,
    ),
    Row(
        "Sokoban steps, 6x6, peer with its image",
        "sokoban_steps",
        {"size": "6x6", "image": True},
        {"episodes": (300, 5)},
        None,
    ),
    Row("FrozenLake steps, peer with text", "lake_steps", {"render": True}, {"episodes": (3000, 1500)}, 1),
    Row(
        "FrozenLake steps, peer without text",
        "lake_steps",
        {"render": False},
        {"episodes": (3000, 1500)},
        None,
    ),
)


class Worker:
    """A process that times jobs."""

    def __init__(self, python: Path, script: str) -> None:
        self._process = subprocess.Popen(
            [python, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, row: Row, side: int, seed: int) -> float:
        """Items per second of one repetition."""
        assert self._process.stdin is not None and self._process.stdout is not None
        arguments = row.arguments | {name: pair[side] for name, pair in row.sizes.items()} | {"seed": seed}
        self._process.stdin.write(json.dumps({"job": row.job, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return float(answer["count"] / answer["seconds"])

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)


def main() -> int:
    if not PEER_PYTHON.exists():
        print(f"{PEER_PYTHON} is missing; run `make bench-environments`, which installs the peers")
        return 2
    ours = Worker(Path(sys.executable), "environments_ours.py")
    peer = Worker(PEER_PYTHON, "environments_peer.py")
    print("| | ours, 1/s | peer, 1/s | ratio (range) | promised |")
    print("|---|---|---|---|---|")
    broken = 0
    for row in ROWS:
        pairs = [(ours.rate(row, 0, seed), peer.rate(row, 1, seed)) for seed in range(1, REPETITIONS + 1)]
        ratios = sorted(mine / theirs for mine, theirs in pairs)
        ratio = median(ratios)
        promised = "" if row.floor is None else f"{row.floor:g}"
        mine, theirs = (median(side) for side in zip(*pairs, strict=True))
        spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
        print(
            f"| {row.name} | {mine:,.0f} | {theirs:,.0f} | {ratio:.1f} ({spread}) | {promised} |", flush=True
        )
        broken += row.floor is not None and ratio < row.floor
    ours.close()
    peer.close()
    if broken:
        print(f"{broken} ratio(s) below what is promised", file=sys.stderr)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

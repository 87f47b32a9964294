"""Our actor step beside TRL's GRPO loss step and beside the bare network, on one batch, in turns.

    make bench-update
    .venv/bin/python benchmarks/update.py --shape smollm2 --lengths 64 --groups 2 --members 4
    .venv/bin/python benchmarks/update.py --model models/SmolLM2 --lengths 64 --groups 2 --members 4

Every contender runs in its own process on one thread and, of the ways to cut the batch, in its fastest. They take
turns, and processor seconds are counted, so that whatever else the machine does falls on all; a ratio is the median
of the repetitions' ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from update_batch import ragged_batch
from update_shapes import SHAPES, vocabulary

HERE = Path(__file__).parent
PYTHON = {
    "ours": sys.executable,
    "bare": sys.executable,
    "trl": str(HERE / ".venv-trl/bin/python"),
}


class Worker:
    """A contender's process."""

    def __init__(self, name: str, model: str, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [PYTHON[name], HERE / f"update_{name}.py", model],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ready(self) -> None:
        """Wait until it holds the model; all contenders start at the same time."""
        self.at_rest: int = self._answer()["at_rest_bytes"]

    def order(self, **content: Any) -> dict[str, Any]:
        """Send an order and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the contender {self.name!r} ended:\n{self._log.read_text()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Measure, print a table, write everything as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--shape", choices=SHAPES, default="tiny", help="random weights; speed does not depend on them"
    )
    parser.add_argument("--model", help="a Hugging Face model directory instead")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[100, 200, 400, 800], help="mean tokens a trajectory"
    )
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--distinct", action="store_true", help="no two trajectories begin alike")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-trl", action="store_true")
    parser.add_argument("--output", type=Path, help="JSON file for all measurements")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = run(options, Path(scratch))
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1))


def run(options: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """One record per trajectory length."""
    model = options.model or options.shape
    names = ["ours", "bare"] if options.without_trl else ["ours", "bare", "trl"]
    workers = [Worker(name, model, scratch / f"{name}.log") for name in names]
    for worker in workers:
        worker.ready()
    print(HEADER, flush=True)
    rows = []
    for length in options.lengths:
        batch = ragged_batch(
            options.seed,
            groups=options.groups,
            members=options.members,
            length=length,
            vocabulary=vocabulary(model),
            shared=not options.distinct,
        )
        batch.save(scratch / "batch.npz")
        splits = {w.name: w.order(batch=str(scratch / "batch.npz"))["split"] for w in workers}
        turns = [{w.name: w.order(step=True) for w in workers} for _ in range(options.repetitions)]
        rows.append(
            {
                "mean_length": float(batch.lengths.mean()),
                "longest": int(batch.lengths.max()),
                "tokens": int(batch.lengths.sum()),
                "sampled_tokens": int(batch.mask.sum()),
                "splits": splits,
                "at_rest_bytes": {w.name: w.at_rest for w in workers},
                "turns": turns,
            }
        )
        print(line(rows[-1]), flush=True)
    for worker in workers:
        worker.close()
    return rows


HEADER = (
    "| mean length | tokens | sampled | computed | padding | ours, tokens/s | with optimizer | x TRL | x bare "
    "| peak memory over rest: ours, bare, TRL (MiB) |\n|---|---|---|---|---|---|---|---|---|---|"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    turns = row["turns"]
    without = [turn["ours"]["cpu_seconds"] - turn["ours"]["optimizer_seconds"] for turn in turns]

    def ratio(name: str) -> str:
        if name not in turns[0]:
            return "-"
        times = [turn[name]["cpu_seconds"] for turn in turns]
        return f"{median(theirs / ours for theirs, ours in zip(times, without, strict=True)):.2f}"

    peaks = [
        f"{(median(turn[name]['peak_bytes'] for turn in turns) - row['at_rest_bytes'][name]) / 2**20:.0f}"
        for name in turns[0]
    ]
    tokens, ours = row["tokens"], turns[0]["ours"]
    cells = [
        f"{row['mean_length']:.0f}",
        f"{tokens:,}",
        f"{row['sampled_tokens'] / tokens:.0%}",
        f"{1 - ours['shared_token_share']:.0%}",
        f"{ours['padding_share']:.1%}",
        f"{tokens / median(without):,.0f}",
        f"{tokens / median(turn['ours']['cpu_seconds'] for turn in turns):,.0f}",
        ratio("trl"),
        ratio("bare"),
        ", ".join(peaks),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

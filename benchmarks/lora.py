"""LoRA beside full fine-tuning on Bandit with the embedded policy: success, peak memory, processor time.

    .venv/bin/python benchmarks/lora.py --seeds 0 1

Every run is a `kedro run --env=smoke` of its own and goes on where it was interrupted. The learning rate of the
adapters is the one with the best validation success (T = 0.5, 80 prompts) on the first seed; test results are read
for the chosen rate alone. Processor seconds are those of the process that made the run in one go; the rest of the
machine does not change them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Run:
    """A finished run with what its process used."""

    name: str
    seconds: float
    """Processor seconds of the whole command."""
    peak: float
    """Largest resident memory, MiB."""


def train(root: Path, name: str, iterations: int, parameters: dict[str, Any]) -> Run:
    """Run it, or take what an earlier call measured."""
    record = root / "data" / "00_runs" / name / "resources.json"
    if not record.exists():
        given = parameters | {"run.name": name, "run.iterations": iterations}
        text = ",".join(f"{key}={value}" for key, value in given.items())
        command = [
            sys.executable,
            "-m",
            "kedro",
            "run",
            "--env=smoke",
            "--pipeline=train_starpo_s",
            "--params",
            text,
        ]
        print("$ kedro", *command[3:], flush=True)
        os.chdir(root)
        process = os.posix_spawn(command[0], command, os.environ | {"OMP_NUM_THREADS": "1"})
        _, status, used = os.wait4(process, 0)
        if status:
            raise SystemExit(f"{name} failed")
        record.write_text(
            json.dumps({"seconds": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024})
        )
    return Run(name, **json.loads(record.read_text()))


def success(root: Path, run: Run, suite: str, iteration: int) -> float:
    """Share of solved prompts, per cent."""
    file = root / "data" / "07_evaluation" / run.name / suite / f"step_{iteration:04d}.json"
    return 100 * float(json.loads(file.read_text())["success"])


def seconds_update(root: Path, run: Run) -> float:
    """Median wall time of an update, s."""
    lines = (root / "data" / "00_runs" / run.name / "timings.jsonl").read_text().splitlines()
    times = sorted(json.loads(line)["seconds_update"] for line in lines if "seconds_update" in line)
    return times[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01], help="of the adapters")
    parser.add_argument("--root", type=Path, default=ROOT, help="project folder")
    options = parser.parse_args()
    root, last = options.root.resolve(), options.iterations

    def full(seed: int) -> Run:
        return train(root, f"full-seed{seed}", last, {"run.seed": seed})

    def lora(seed: int, rate: float) -> Run:
        settings = {
            "run.seed": seed,
            "learner.lora.rank": options.rank,
            "learner.lora.alpha": 2 * options.rank,
        }
        settings["learner.actor.learning_rate"] = rate
        return train(root, f"lora-rank{options.rank}-rate{rate:g}-seed{seed}", last, settings)

    tried = {rate: lora(options.seeds[0], rate) for rate in options.rates}
    validation = {rate: success(root, run, "validation-t0_5", last) for rate, run in tried.items()}
    best = max(validation, key=lambda rate: validation[rate])
    print("\nvalidation by learning rate:", ", ".join(f"{r:g}: {v:.1f} %" for r, v in validation.items()))
    print(f"\n| what | seed | T = 0.5 | T = 1 | update, s | processor, s | peak, MiB |\n|{'---|' * 7}")
    for seed in options.seeds:
        for label, run in (("all weights", full(seed)), (f"rank {options.rank}, {best:g}", lora(seed, best))):
            results = [
                f"{success(root, run, suite, 0):.1f} → {success(root, run, suite, last):.1f}"
                for suite in ("test-t0_5", "test-t1_0")
            ]
            print(
                f"| {label} | {seed} | {' | '.join(results)} | {seconds_update(root, run):.2f} | {run.seconds:.0f} "
                f"| {run.peak:.0f} |"
            )


if __name__ == "__main__":
    main()

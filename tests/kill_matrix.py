"""A run that is killed again and again against one that is left alone: equal bytes, equal histories in MLflow.

    python tests/kill_matrix.py [--kills 20] [--seed 0]

Each kill is SIGKILL at a random moment of ``kill_at.MOMENTS``; then the same command goes on to the next kill, and at
last to its end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from kill_at import MOMENTS
from projects import SMOKE, TRAINED, Project, new_project

#: How often a moment comes while a short run goes on, at most; a kill comes at a random one.
OFTEN = {
    "before a file has its name": 20,
    "after a file has its name": 20,
    "before a file is on the disk": 60,
    "between checksum and name": 20,
    "engine start": 1,
    "turn of a rollout or an evaluation": 1500,
    "optimizer step": 150,
    "between update and checkpoint": 2,
    "between files of a checkpoint": 8,
    "before numbers go to MLflow": 4,
    "after numbers went to MLflow": 4,
    "between nodes": 12,
}
CLOCKS = ("seconds_", "tokens_per_second", "system/")
"""Metrics that differ between equal runs."""

History = dict[str, list[tuple[int, float]]]


def killed(project: Project, moment: str, count: int, *arguments: str) -> bool:
    """Go on with the run until that moment; False: it ended before.

    Raises:
        RuntimeError: it ended by itself with an error.
    """
    script = Path(__file__).with_name("kill_at.py")
    done = subprocess.run(
        [sys.executable, str(script), moment, str(count), *arguments],
        cwd=project.root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{moment}, {count}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode != 0


def histories(project: Project, run: str) -> History:
    """Metrics of the run in MLflow by name: steps and values in the order of steps, without clock times."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{project.root / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'starpo'")
    (found,) = client.search_runs([experiment.experiment_id], f"tags.`starpo.run` = '{run}'")
    names = [name for name in found.data.metrics if not name.startswith(CLOCKS)]
    return {
        name: sorted((row.step, row.value) for row in client.get_metric_history(found.info.run_id, name))
        for name in names
    }


def differences(one: Project, other: Project, run: str) -> list[str]:
    """What the run left differently in two projects: tables, policies, numbers in MLflow. Empty: nothing."""
    found = []
    pairs = ((one.digests(run), other.digests(run)), (histories(one, run), histories(other, run)))
    for left, right in pairs:
        for name in sorted(left.keys() | right.keys()):
            if left.get(name) != right.get(name):
                found.append(f"{name}: {left.get(name)} and {right.get(name)}")
    return found


def compare(folder: Path, kills: int, seed: int, *arguments: str) -> list[str]:
    """Kill one run ``kills`` times, leave its twin alone; what differs in the end."""
    left_alone, often_killed = (folder / name for name in ("left_alone", "often_killed"))
    for root in (left_alone, often_killed):
        root.mkdir()
        new_project(root)
    alone, victim = Project(left_alone), Project(often_killed)
    done = alone.run(*arguments)
    if done.code:
        raise RuntimeError(done.text)
    draw = random.Random(seed)
    hit = 0
    for _ in range(4 * kills):
        if hit == kills:
            break
        moment = draw.choice(sorted(MOMENTS))
        count = draw.randint(1, OFTEN[moment])
        if not killed(victim, moment, count, *arguments):
            break  # the run reached its end
        hit += 1
        print(f"kill {hit:2}: {moment}, time {count}", flush=True)  # noqa: T201
    last = victim.run(*arguments)
    if last.code:
        raise RuntimeError(last.text)
    found = differences(alone, victim, TRAINED)
    if hit < kills:
        found.append(f"the run ended after {hit} of {kills} kills: a longer one is needed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=15)
    given = parser.parse_args()
    sizes = f"--params=run.iterations={given.iterations},evaluation.every=3"
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), given.kills, given.seed, *SMOKE, sizes)
    print(*found or ["tables, policies and histories in MLflow are equal"], sep="\n")  # noqa: T201
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

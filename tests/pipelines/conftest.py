"""A Kedro project in a temporary folder, and the real smoke run that several tests look at."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
SMOKE = ("--env=smoke", "--pipeline=train_starpo_s")
TRAINED = "train_starpo_s-bandit-seed0"


@dataclass(frozen=True)
class Command:
    """A finished ``kedro`` command."""

    code: int
    text: str
    """Standard output and standard error."""
    seconds: float


@dataclass(frozen=True)
class Project:
    """A copy of the project's configuration; the code is the installed package."""

    root: Path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kedro", "run", *arguments],
            cwd=self.root,
            env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> Command:
        """``kedro run`` with ``arguments``, to its end."""
        started = time.monotonic()
        process = self.start(*arguments)
        text, _ = process.communicate(timeout=300)
        return Command(process.returncode, text, time.monotonic() - started)

    def run_and_kill(self, *arguments: str, when: Path) -> Command:
        """The same, ended by SIGTERM as soon as ``when`` exists."""
        started = time.monotonic()
        process = self.start(*arguments)
        while not when.exists() and process.poll() is None and time.monotonic() - started < 200:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=100)
        return Command(process.returncode, text, time.monotonic() - started)

    def folder(self, layer: str, run: str) -> Path:
        return self.root / "data" / layer / run

    def digests(self, run: str) -> dict[str, str]:
        """SHA-256 of every table and every tensor file of a run."""
        files = [
            path
            for layer in ("02_rollouts", "03_scored", "05_updates", "06_models", "07_evaluation")
            for kind in ("*.parquet", "*.safetensors")
            for path in sorted(self.folder(layer, run).rglob(kind))
        ]
        return {
            str(path.relative_to(self.root / "data")).replace(f"/{run}/", "/RUN/"): hashlib.sha256(
                path.read_bytes()
            ).hexdigest()
            for path in files
        }


@pytest.fixture(scope="session")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Project]:
    """Builder of empty projects."""

    def build() -> Project:
        root = tmp_path_factory.mktemp("project")
        shutil.copytree(SOURCE / "conf", root / "conf")
        for name in ("pyproject.toml", ".telemetry"):
            shutil.copy2(SOURCE / name, root / name)
        (root / "src").mkdir()
        return Project(root)

    return build


@pytest.fixture(scope="session")
def project(new_project: Callable[[], Project]) -> Project:
    """The project of the smoke run; its runs share one base policy."""
    return new_project()


@pytest.fixture(scope="session")
def smoke(project: Project) -> Command:
    """``kedro run --env=smoke --pipeline=train_starpo_s``, the command that CI runs."""
    done = project.run(*SMOKE)
    assert done.code == 0, done.text
    return done

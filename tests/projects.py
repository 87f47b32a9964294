"""Kedro projects in temporary folders, and ``kedro run`` as a process of its own."""

from __future__ import annotations

import hashlib
import logging.config
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

SOURCE = Path(__file__).resolve().parents[1]
SMOKE = ("--env=smoke", "--pipeline=train_starpo_s")
TRAINED = "train_starpo_s-bandit-seed0"
SIZES = yaml.safe_load((SOURCE / "conf" / "smoke" / "parameters.yml").read_text())
ITERATIONS: int = SIZES["run"]["iterations"]
EVERY: int = SIZES["evaluation"]["every"]
"""Iterations between evaluations, whose policies are kept as models."""
GROUPS, GROUP_SIZE = SIZES["rollout"]["groups"], SIZES["rollout"]["group_size"]
TEST_PROMPTS: int = SIZES["evaluation"]["suites"]["test"]["prompts"]


@dataclass(frozen=True)
class Command:
    """A finished ``kedro`` command."""

    code: int
    text: str
    """Standard output and standard error."""
    cpu_seconds: float
    """Processor time of the command, which other work on the machine does not change."""


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
        before = _cpu_seconds()
        process = self.start(*arguments)
        text, _ = process.communicate(timeout=500)
        return Command(process.returncode, text, _cpu_seconds() - before)

    def run_and_kill(self, *arguments: str, when: Path) -> Command:
        """The same, ended by SIGTERM as soon as ``when`` exists."""
        before, started = _cpu_seconds(), time.monotonic()
        process = self.start(*arguments)
        while not when.exists() and process.poll() is None and time.monotonic() - started < 400:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=100)
        return Command(process.returncode, text, _cpu_seconds() - before)

    def refused(self, *arguments: str) -> str:
        """The message of a ``kedro run`` that must end with code 1 and without a traceback, in this process."""
        # Kedro takes seconds to import, which most tests need not wait for.
        from click.testing import CliRunner
        from kedro.framework.startup import bootstrap_project

        from starpo.cli import cli

        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.setattr(logging.config, "dictConfig", lambda _: None)  # pytest's handlers stay
            bootstrap_project(self.root)
            done = CliRunner().invoke(cli, ["run", *arguments])
        assert done.exit_code == 1, done.output
        assert isinstance(done.exception, SystemExit), done.exc_info
        assert done.stderr.count("Error:") == 1, done.output
        return done.stderr

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


def new_project(root: Path) -> Project:
    """A project in the empty folder ``root``."""
    shutil.copytree(SOURCE / "conf", root / "conf")
    for name in ("pyproject.toml", ".telemetry"):
        shutil.copy2(SOURCE / name, root / name)
    (root / "src").mkdir()
    return Project(root)


def _cpu_seconds() -> float:
    """Of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

"""Runs that hang or are killed, really: what they say, how they end, and when ``--supervise`` starts them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from projects import Project, new_project

from starpo.app.watchdog import HUNG

pytestmark = pytest.mark.slow

RUN = "hung"
#: Plays as Bandit does while it is tried before the run, and in the run's first demonstrations hangs.
HANGING = """
import time
from starpo.environments.bandit import Bandit

class Hanging(Bandit):
    trusted = False
    steps = 0

    def _act(self, action):
        Hanging.steps += 1
        if Hanging.steps > 40:
            time.sleep(3600)
        return super()._act(action)
"""


def hanging(root: Path) -> Project:
    project = new_project(root)
    (project.root / "src" / "hanging.py").write_text(HANGING)
    return project


def command(*, limit: str = "null") -> tuple[str, ...]:
    given = f"run.name={RUN},environment.name=hanging:Hanging,run.step_limit_seconds={limit}"
    return ("--env=smoke", "--pipeline=train_starpo_s", "--supervise", f"--params={given}")


def record(project: Project) -> dict[str, Any]:
    file = project.folder("00_runs", RUN) / "run.json"
    return json.loads(file.read_text()) if file.exists() else {}


def begun(project: Project, process: subprocess.Popen[str], *, other_than: int = 0) -> int:
    """Number of the process that works on the run."""
    for _ in range(4000):
        pid = int(record(project).get("pid", 0))
        if pid not in (0, other_than):
            return pid
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("it never began")


@pytest.mark.nightly
def test_a_run_that_hangs_says_where_and_is_started_again_once(tmp_path: Path) -> None:
    project = hanging(tmp_path)
    done = project.run(*command(limit="60"))
    assert done.code == HUNG, done.text
    assert done.text.count("Error: ") == 2, "the first start and the second"
    said = next(line for line in done.text.splitlines() if line.startswith("Error: "))
    for part in ("node ", "(run.step_limit_seconds = 60)", "the same command goes on", "environment.workers"):
        assert part in said
    assert "Traceback" not in done.text
    again = "--supervise: the run hung and ended itself (exit status 75); it is started again, once"
    assert done.text.count(again) == 1
    assert record(project)["state"] == "failed"
    assert "run.step_limit_seconds = 60" in record(project)["message"]
    log = (project.folder("00_runs", RUN) / "run.log").read_text()
    assert "in _act" in log, "the stack"


def test_a_killed_run_is_started_again_once_and_never_after_it_was_told_to_end(tmp_path: Path) -> None:
    project = hanging(tmp_path)
    supervisor = project.start(*command())
    first = begun(project, supervisor)
    os.kill(first, signal.SIGKILL)
    second = begun(project, supervisor, other_than=first)
    supervisor.send_signal(signal.SIGTERM)
    text, _ = supervisor.communicate(timeout=200)
    assert supervisor.returncode == 130, text
    assert text.count("--supervise: the run was killed by signal SIGKILL; it is started again, once") == 1
    assert "the same command goes on from here" in text
    assert record(project)["state"] == "killed" and record(project)["pid"] == second
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    done = project.run("--env=smoke", "--pipeline=train_starpo_s", "--supervise", "--params=rollout.grups=3")
    assert done.code == 1
    assert done.text.count("Error: ") == 1 and "rollout.grups" in done.text
    assert "--supervise" not in done.text

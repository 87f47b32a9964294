"""What DVC records under a name was made with the parameters that the name stands for, or the stage stops first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from projects import SOURCE, new_project

from starpo.app.expected_names import main

BASE = "base-frozen_lake_no_slip-5519976f6035"
RUN = "train_starpo_s-frozen_lake_no_slip-seed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's code, configuration and stages in a repository of their own."""
    new_project(tmp_path)
    (tmp_path / "src").rmdir()
    for name in ("src", "pipelines", "studies"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "dvc.lock")
        shutil.copytree(SOURCE / name, tmp_path / name, ignore=ignored)
    (tmp_path / ".dvc").mkdir()
    for name in (".dvc/config", ".dvcignore", "dvc.yaml"):
        shutil.copy2(SOURCE / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def edit(project: Path, file: str, old: str, new: str) -> None:
    path = project / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def reproduce(project: Path, *target: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["dvc", "repro", *target],
        cwd=project,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(project / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def outs(project: Path) -> set[str]:
    """Names of all outs of the stages in the project's folder."""
    with Repo(str(project)) as repo:
        return {Path(out.fs_path).relative_to(project).as_posix() for out in repo.index.outs}


def test_outs_follow_seed_task_and_iterations(project: Path) -> None:
    assert f"data/02_rollouts/{RUN}0" in outs(project)
    edit(project, "conf/base/parameters.yml", "seed: 0", "seed: 1")
    edit(project, "conf/base/parameters.yml", "iterations: 50", "iterations: 60")
    found = outs(project)
    assert f"data/02_rollouts/{RUN}1" in found and f"data/02_rollouts/{RUN}0" not in found
    assert f"data/08_reporting/{RUN}1/comparison_0060.json" in found


def test_an_edited_seed_passes_under_its_own_name_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project, "conf/base/parameters.yml", "seed: 0", "seed: 1")
    monkeypatch.chdir(project)
    assert main(["--base", BASE, "--run", f"{RUN}1", "--comparison", "comparison_0050"]) == 0
    assert main(["--base", BASE, "--run", f"{RUN}0"]) == 1
    assert capsys.readouterr().err == (
        f"error: dvc.yaml names the run {RUN}0, the parameters give {RUN}1: nothing was done; "
        "correct the name in dvc.yaml, or the parameters\n"
    )


def test_iterations_that_the_template_cannot_write_are_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project, "conf/base/parameters.yml", "iterations: 50", "iterations: 200")
    monkeypatch.chdir(project)
    assert main(["--base", BASE, "--comparison", "comparison_00200"]) == 1
    assert "the parameters give comparison_0200" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "file"),
    [
        (("base_policy",), "conf/base/parameters_base_policy.yml"),
        (("--single-item", "train"), "conf/base/parameters_base_policy.yml"),
        (("studies/smoke/dvc.yaml:base_policy",), "conf/study_smoke/parameters.yml"),
        (
            ("--single-item", "studies/smoke/dvc.yaml:train@smoke-starpo_s-0"),
            "conf/study_smoke/parameters.yml",
        ),
    ],
    ids=["base policy", "run", "base policy of a study", "cell"],
)
def test_a_stage_named_after_another_base_policy_stops_before_any_work(
    project: Path, target: tuple[str, ...], file: str
) -> None:
    for name in (BASE, "base-bandit-bb4aa4ffc07b"):  # what the stages depend on
        (project / "data/06_models" / name).mkdir(parents=True)
    before = outs(project)
    edit(project, file, "hidden_size: ", "hidden_size: 1")
    assert outs(project) == before, "DVC cannot compute the hash in the name"
    done = reproduce(project, *target)
    assert done.returncode != 0
    assert "error: dvc.yaml names the base policy base-" in done.stderr and "nothing was done" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(project.glob("data/0*/*/*")) and not (project / "dvc.lock").exists()
    assert not (project / "studies/smoke/dvc.lock").exists()

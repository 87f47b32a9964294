"""studies/smoke under DVC: from nothing, again, pushed and pulled, and forced in a clone with an empty cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import SOURCE, new_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

FILE = "studies/smoke/dvc.yaml"
CELLS = {"smoke-smoke-starpo_ppo-seed0", "smoke-smoke-starpo_s-seed0"}
#: What must be equal byte by byte. Records, logs, metrics per iteration and the page hold clock times.
EQUAL = ("data/02_rollouts/", "data/03_scored/", "data/06_models/", "data/07_evaluation/", "studies/smoke/")


def command(folder: Path, *words: str) -> str:
    """Output of a command, which must succeed; ``dvc`` and what its stages call are this environment's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {f"GIT_{role}_{what}": "t@t" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ
        | names
        # Its own sources, not those that the environment was installed from.
        | {"PATH": path, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def checksums(folder: Path) -> dict[str, str]:
    """MD5 by output of all stages, from the study's ``dvc.lock``."""
    stages = yaml.safe_load((folder / "studies/smoke/dvc.lock").read_text())["stages"]
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}


def rollouts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("data/02_rollouts/*starpo_s*/*.parquet")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def origin(place: Path) -> Path:
    """A repository of the project with the study run from nothing and its small files committed."""
    root = place / "origin"
    root.mkdir()
    new_project(root)
    (root / "src").rmdir()
    leave_out = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "dvc.lock")
    for name in ("src", "pipelines", "studies"):
        shutil.copytree(SOURCE / name, root / name, ignore=leave_out)
    for made in ("cells", "outcomes", "curves", "plots", "results.md", "claims.json", "verdicts.json"):
        path = root / "studies/smoke" / made
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (root / ".dvc").mkdir()
    for name in (".dvc/config", ".dvc/.gitignore", ".dvcignore", "dvc.yaml", ".gitignore"):
        shutil.copy2(SOURCE / name, root / name)
    command(root, "git", "init", "--quiet", "--initial-branch=main")
    command(root, "git", "add", "--all")
    command(root, "git", "commit", "--quiet", "--message=project")
    command(root, "dvc", "repro", FILE)
    command(root, "git", "add", "--all")
    command(root, "git", "commit", "--quiet", "--message=study")
    return root


def test_results_and_lock_are_in_git_and_tables_are_not(origin: Path) -> None:
    files = command(origin, "git", "ls-files").split()
    assert {Path(name).stem for name in files if name.startswith("studies/smoke/cells/")} == CELLS
    for name in ("dvc.lock", "claims.json", "verdicts.json", "results.md"):
        assert f"studies/smoke/{name}" in files
    assert not [name for name in files if name.startswith("data/") and not name.endswith(".gitkeep")]
    verdicts = json.loads((origin / "studies/smoke/verdicts.json").read_text())
    assert verdicts["s_ends_higher"] == "undecided", "one seed decides nothing"
    shown = command(origin, "dvc", "metrics", "show", "--json")
    assert all(cell in shown for cell in CELLS)


def test_a_second_reproduction_does_nothing(origin: Path) -> None:
    assert "Data and pipelines are up to date" in command(origin, "dvc", "repro", FILE)


def test_a_clean_clone_pulls_what_was_pushed(origin: Path, place: Path) -> None:
    command(origin, "dvc", "push", FILE)
    command(place, "git", "clone", "--quiet", "origin", "pulled")
    command(place / "pulled", "dvc", "pull", FILE)
    assert rollouts(place / "pulled") == rollouts(origin) != {}
    assert "Data and pipelines are up to date" in command(place / "pulled", "dvc", "repro", FILE)


@pytest.mark.nightly
def test_a_forced_reproduction_elsewhere_gives_equal_checksums(origin: Path, place: Path) -> None:
    command(place, "git", "clone", "--quiet", "origin", "forced")
    clone = place / "forced"
    assert not (clone / ".dvc/cache").exists()
    command(clone, "dvc", "repro", "--force", FILE)
    before, after = checksums(origin), checksums(clone)
    assert before.keys() == after.keys()
    compared = [name for name in before if name.startswith(EQUAL)]
    # Four layers and three small files per cell, the base policy, findings, verdicts, page and curves.
    assert len(compared) == 7 * len(CELLS) + 5
    assert {name: before[name] for name in compared} == {name: after[name] for name in compared}

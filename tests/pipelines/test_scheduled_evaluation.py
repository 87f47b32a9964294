"""The scheduled evaluation, really run: an intact champion passes, a damaged one fails, a better candidate rises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import sealed
from projects import ITERATIONS, SIZES, SOURCE, TRAINED, Project, new_project
from safetensors.torch import load_file, save_file

from starpo.app.commands.scheduled_evaluation import DROPPED
from starpo.evaluation.champions import (
    FILE,
    FOLDER,
    champion_folder,
    folder_hash,
    read_champions,
    write_champion,
)
from starpo.store.policies import Policy
from starpo.store.policy_state import MODEL

pytestmark = pytest.mark.slow


def starpo(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("starpo")), *arguments],
        cwd=project.root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture
def env(project: Project) -> str:
    """The smoke run's parameters with an evaluation of seconds: one suite and the engine that starts faster."""
    folder = project.root / "conf" / "quick"
    folder.mkdir()
    suites = SIZES["evaluation"]["suites"]
    quick = SIZES | {
        "evaluation": {"every": ITERATIONS, "generalisation": [], "temperatures": [0.5], "suites": suites},
        "engine": {"kind": "transformers"},
        "gates": {"every": None},
    }
    (folder / "parameters.yml").write_text(yaml.safe_dump(quick))
    return folder.name


@pytest.mark.usefixtures("smoke")
def test_a_champion_is_named_checked_beaten_and_missed(project: Project, env: str) -> None:
    named = starpo(project, "champion", "set", f"{TRAINED}@0", f"--env={env}")
    assert named.returncode == 0, named.stdout + named.stderr
    base = read_champions(project.root)["bandit"]
    assert (base.run, base.iteration) == (TRAINED, 0)

    # The trained policy is better than the base policy, so it takes its place, without being named.
    risen = starpo(project, "champion", "check", "bandit")
    assert risen.returncode == 0, risen.stdout + risen.stderr
    best = read_champions(project.root)["bandit"]
    assert best.iteration == ITERATIONS
    again, duel = risen.stdout.split("champion and candidate")
    assert "same" in again and "worse" not in again
    assert "better" in duel
    assert best.suites["test-t0_5"].success > base.suites["test-t0_5"].success
    assert folder_hash(champion_folder(project.root, "bandit")) == best.sha256

    # The same weights once more, on the same machine: every trajectory ends as before, and nothing challenges itself.
    intact = starpo(project, "champion", "check", "bandit", "--candidate", f"{TRAINED}@{ITERATIONS}")
    assert intact.returncode == 0, intact.stdout + intact.stderr
    assert "every trajectory ends as recorded, on the same machine and libraries" in intact.stdout
    assert "and candidate" not in intact.stdout
    assert read_champions(project.root)["bandit"] == best

    # Weights that lost their output head under the champion's own name.
    folder = champion_folder(project.root, "bandit")
    tensors = load_file(folder / MODEL)
    head = next(name for name in tensors if name.endswith("lm_head.weight"))
    tensors[head] = tensors[head] * 0.0
    save_file(tensors, folder / MODEL, metadata={"format": "pt"})
    sealed(Policy.open(folder))
    refused = starpo(project, "champion", "check", "bandit")
    assert refused.returncode == 1 and "this is not the champion" in refused.stderr
    write_champion(project.root, "bandit", best.model_copy(update={"sha256": folder_hash(folder)}))
    damaged = starpo(project, "champion", "check", "bandit")
    assert damaged.returncode == DROPPED, damaged.stdout + damaged.stderr
    assert "significantly worse than recorded" in damaged.stdout
    assert "code or data must have changed" in damaged.stdout


def test_the_champion_in_git_is_as_good_as_recorded_in_a_project_without_any_run(tmp_path: Path) -> None:
    fresh = new_project(tmp_path)
    shutil.copy2(SOURCE / FILE, fresh.root / FILE)
    shutil.copytree(SOURCE / FOLDER, fresh.root / FOLDER)
    checked = starpo(fresh, "champion", "check", "--root", str(fresh.root))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "bandit: champion" in checked.stdout and "worse" not in checked.stdout
    assert not list((fresh.root / "data/06_models").glob("*")), (
        "nothing is left that a stage alone could take"
    )

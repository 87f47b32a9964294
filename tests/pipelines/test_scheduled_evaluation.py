"""The scheduled evaluation, really run: an intact champion passes, a damaged one fails, a better candidate rises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ITERATIONS, SIZES, TRAINED, Project
from safetensors.torch import load_file, save_file

from starpo.app.commands.scheduled_evaluation import DROPPED
from starpo.evaluation.champions import model_hash, read_champions, write_champion
from starpo.store.policy_state import MODEL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smoke")]


def starpo(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("starpo")), *arguments],
        cwd=project.root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=400,
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


def test_a_champion_is_named_checked_beaten_and_missed(project: Project, env: str) -> None:
    named = starpo(project, "champion", "set", f"{TRAINED}@0", f"--env={env}")
    assert named.returncode == 0, named.stdout + named.stderr
    base = read_champions(project.root)["bandit"]
    assert (base.run, base.iteration) == (TRAINED, 0)

    # The same weights once more: no drop. The trained policy is better, so it takes the champion's place.
    risen = starpo(project, "champion", "check", "bandit", "--candidate", f"{TRAINED}@{ITERATIONS}")
    assert risen.returncode == 0, risen.stdout + risen.stderr
    best = read_champions(project.root)["bandit"]
    assert best.iteration == ITERATIONS
    again, duel = risen.stdout.split("champion and candidate")
    assert "same" in again and "worse" not in again
    assert "better" in duel
    assert best.suites["test-t0_5"].success > base.suites["test-t0_5"].success

    # Weights that lost their output head under the champion's own name.
    folder = project.folder("06_models", TRAINED) / f"policy_{ITERATIONS:04d}"
    shutil.copy2(folder / MODEL, project.root / "kept.safetensors")
    tensors = load_file(folder / MODEL)
    head = next(name for name in tensors if name.endswith("lm_head.weight"))
    tensors[head] = tensors[head] * 0.0
    save_file(tensors, folder / MODEL, metadata={"format": "pt"})
    refused = starpo(project, "champion", "check", "bandit")
    assert refused.returncode == 1 and "this is not the champion" in refused.stderr
    write_champion(project.root, "bandit", best.model_copy(update={"sha256": model_hash(folder)}))
    damaged = starpo(project, "champion", "check", "bandit")
    shutil.copy2(project.root / "kept.safetensors", folder / MODEL)
    assert damaged.returncode == DROPPED, damaged.stdout + damaged.stderr
    assert "significantly worse than recorded" in damaged.stdout

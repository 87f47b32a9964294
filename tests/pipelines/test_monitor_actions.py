"""The monitor's actions in a real training that is built to collapse."""

from __future__ import annotations

import json

import pytest
from projects import Project

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smoke")]


def test_a_collapsing_run_goes_back_to_its_good_policy_and_then_stops(project: Project) -> None:
    changes = {
        "run.name": "trap",
        "run.iterations": "12",
        # A hundred times what the policy can bear.
        "learner.actor.learning_rate": "0.05",
        "algorithm.entropy_coefficient": "0.0",
        "monitor.action": "roll_back",
        "monitor.max_roll_backs": "1",
        "monitor.window": "2",
        "monitor.reference_iterations": "1",
        "monitor.patience": "1",
        "evaluation.every": "12",
        "evaluation.suites.test.prompts": "16",
        "evaluation.suites.validation.prompts": "8",
    }
    parameters = ",".join(f"{key}={value}" for key, value in changes.items())
    done = project.run("--env=smoke", "--pipeline=train_starpo_grpo", f"--params={parameters}")
    assert done.code == 0, done.text

    files = sorted(project.folder("05_updates", "trap").glob("iter_*.json"))
    metrics = [json.loads(file.read_text()) for file in files]
    statuses = [row["status"] for row in metrics]
    back = statuses.index("rolled_back")
    assert statuses[:back] == ["trained"] * back
    assert statuses.count("rolled_back") == 1 and statuses[-1] == "stopped"
    assert metrics[back]["monitor"] == 2.0
    assert f"monitor: iteration {back}: back to the policy of iteration 0" in done.text
    assert "stopped by itself" in done.text
    assert done.text.count(" stopped ") <= 2, done.text

    # The policy after the roll-back is the one of the beginning: it plays as well, the collapsed one did not.
    assert metrics[back]["success"] < 0.5 * metrics[0]["success"]
    assert metrics[back + 1]["success"] > 0.8 * metrics[0]["success"]
    manifest = json.loads(
        (project.folder("06_models", "trap") / f"policy_{back + 1:04d}" / "manifest.json").read_text()
    )
    assert (manifest["status"], manifest["weights_in"]) == ("rolled_back", "policy_0000")
    assert manifest["policy_step"] == back + 1
    assert manifest["counters"]["actor_steps"] == 0
    assert manifest["monitor"]["roll_backs"] == 1

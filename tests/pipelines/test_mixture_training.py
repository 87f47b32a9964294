"""A whole training on two environments whose episodes live in worker processes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from projects import new_project

pytestmark = pytest.mark.slow

PARAMETERS = {
    "run": {"iterations": 2, "checkpoint_every": 2},
    "environment": {
        "name": "bandit_and_lake",
        "arguments": None,
        "workers": 2,
        "mixture": [
            {"name": "bandit", "weight": 1},
            {"name": "frozen_lake_no_slip", "label": "lake", "weight": 3, "reward_scale": 2.0},
        ],
    },
    "agent": {
        "max_turns": 2,
        "max_actions_per_turn": 3,
        "max_actions": 6,
        "max_tokens_per_turn": 16,
        "max_tokens_per_trajectory": 160,
    },
    "base_policy": {
        "hidden_size": 64,
        "heads": 2,
        "layers": 1,
        "batch_tokens": 1024,
        "stages": [{"demonstrations": 800, "careful_share": 0.4, "learning_rate": 0.004}],
    },
    "rollout": {"groups": 8, "group_size": 8},
    "evaluation": {
        "every": 2,
        "temperatures": [1.0],
        "suites": {name: {"split": name, "prompts": 16} for name in ("validation", "test")},
    },
}


def test_two_environments_train_one_policy(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    (tmp_path / "conf" / "both").mkdir()
    (tmp_path / "conf" / "both" / "parameters.yml").write_text(yaml.safe_dump(PARAMETERS))
    done = project.run("--env=both", "--pipeline=train_starpo_s")
    assert done.code == 0, done.text
    run = "train_starpo_s-bandit_and_lake-seed0"
    for iteration in range(2):
        name = f"iter_{iteration:04d}"
        rollouts = pq.read_table(project.folder("02_rollouts", run) / f"{name}.parquet").to_pandas()
        groups = rollouts.groupby("environment", observed=True)["group"].nunique().to_dict()
        assert groups == {"bandit": 2, "lake": 6}
        metrics = json.loads((project.folder("05_updates", run) / f"{name}.json").read_text())
        assert metrics["status"] == "trained"
        assert {"success/bandit", "success/lake", "return/lake", "groups_kept/bandit"} <= metrics.keys()
        updates = pq.read_table(project.folder("05_updates", run) / f"{name}.parquet").to_pandas()
        of_group = dict(zip(rollouts["group"], rollouts["environment"], strict=True))
        assert all(
            of_group[group] == own
            for group, own in zip(updates["group"], updates["environment"], strict=True)
        )
    comparison = project.folder("08_reporting", run) / "comparison_0002.json"
    suites = {each["suite"] for each in json.loads(comparison.read_text())["comparisons"]}
    assert suites == {"test_bandit", "test_lake"}

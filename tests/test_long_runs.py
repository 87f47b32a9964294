"""From 10,000 iterations on, names of folders and files have five digits and no longer sort as their numbers do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starpo.app.commands.named_policies import named_policy
from starpo.app.commands.runs import _summaries
from starpo.app.hooks.parameters import ParametersHooks
from starpo.app.hooks.retention import RetentionHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.config.resolved import Source
from starpo.pipelines.rescore.nodes import compare_scorings
from starpo.pipelines.rescore.pipeline import _stored
from starpo.store.retention import last_complete, stored_policies
from starpo.store.runs import new_record, write_record
from starpo.store.sources import newest_source, parse_source

RUN = "train_starpo_s-bandit-seed0"
NUMBERS = (9, 9999, 10000, 12345)


def policy(root: Path, iteration: int, **manifest: Any) -> None:
    folder = root / "data/06_models" / RUN / f"policy_{iteration:04d}"
    (folder / "learner").mkdir(parents=True)
    (folder / "model.safetensors").touch()
    (folder / "learner/actor_optimizer.safetensors").touch()
    about = {"schema_version": 2, "run": RUN, "iteration": iteration, "status": "trained"}
    about |= {"files": {"model.safetensors": "", "learner/actor_optimizer.safetensors": ""}}
    about |= {"weights_in": folder.name, "monitor": {"good": iteration}} | manifest
    (folder / "manifest.json").write_text(json.dumps(about))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run with policies, rollouts and scores at ``NUMBERS``; the last policy has stopped."""
    write_record(tmp_path, new_record(RUN, "train_starpo_s", {}))
    for number in NUMBERS:
        policy(tmp_path, number, status="stopped" if number == NUMBERS[-1] else "trained")
        for layer in ("02_rollouts", "03_scored"):
            folder = tmp_path / "data" / layer / RUN
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"iter_{number:04d}.parquet").touch()
    return tmp_path


@pytest.mark.parametrize("what", ["policy", "rollouts", "scored"])
def test_the_latest_of_a_run_is_that_with_the_highest_number(root: Path, what: str) -> None:
    latest = Source(RUN, NUMBERS[-1])
    assert parse_source(root, f"{RUN}@latest", what) == latest
    assert newest_source(root, what, "bandit") == latest


def test_stored_policies_rise(root: Path) -> None:
    models = root / "data/06_models" / RUN
    assert [each.iteration for each in stored_policies(models)] == list(NUMBERS)
    found = last_complete(models, 12000)
    assert found is not None and found.iteration == 10000
    assert named_policy(root, RUN).iteration == NUMBERS[-1]


def test_hooks_look_at_the_newest_policy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = ParametersHooks()
    run = RunRecordHooks(parameters)
    run.root, run.name, run.record = root, RUN, new_record(RUN, "train_starpo_s", {})
    assert run._stopped()
    pruned: dict[str, Any] = {}
    monkeypatch.setattr("starpo.store.retention.prune", lambda _, **kept: pruned.update(kept))
    monkeypatch.setattr("starpo.store.retention.evaluated_iterations", lambda _: [0])
    current = SimpleNamespace(monitor=SimpleNamespace(action="roll_back"), run=SimpleNamespace(keep_last=1))
    parameters.resolved = SimpleNamespace(parameters=current)  # type: ignore[assignment]
    RetentionHooks(run).after_dataset_saved("policy_12345")
    assert pruned["keep_state"] == NUMBERS[-1]


def test_a_run_is_scored_anew_in_its_own_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    names = [f"{number:04d}" for number in NUMBERS]
    assert _stored(Source(RUN, NUMBERS[-1])) == list(NUMBERS)
    monkeypatch.setattr("starpo.pipelines.rescore.nodes.compare_scores", lambda before, after: {})
    tables: dict[str, Any] = {f"{kind}_{name}": None for name in names for kind in ("before", "after")}
    rows = compare_scorings(**tables)["iterations"]
    assert [row["iteration"] for row in rows] == list(NUMBERS)


def test_evaluations_are_listed_by_step(root: Path) -> None:
    folder = root / "data/07_evaluation" / RUN / "test-t1_0"
    folder.mkdir(parents=True)
    for number in NUMBERS:
        (folder / f"step_{number:04d}.json").write_text("{}")
    assert [step for _, step, _ in _summaries(root, RUN)] == list(NUMBERS)

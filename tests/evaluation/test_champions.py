"""champion.json and champions/: only the recorded policy counts, and only runs like the champion's are rivals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import PROJECT, machine

from starpo.app.config_loader import ConfigLoader
from starpo.app.parameters import resolve_parameters
from starpo.errors import UserError
from starpo.evaluation import champions
from starpo.evaluation.champions import (
    FILE,
    LIMIT,
    Champion,
    base_of,
    champion_folder,
    find_champion,
    folder_hash,
    keep_policy,
    newest_rival,
    read_champions,
    write_champion,
)
from starpo.store.layout import RunPaths
from starpo.store.policies import Policy, new_policy
from starpo.store.runs import new_record, write_record


def champion(**changes: Any) -> Champion:
    fields = {"run": "lake", "iteration": 50, "env": "base", "base": "base-lake-1", "sha256": "0" * 64}
    return Champion(**fields | {"suites": {}, "machine": machine()} | changes)


def kept(root: Path, policy: Policy, **changes: Any) -> Champion:
    """``policy`` as champion of the lake."""
    found = champion(sha256=keep_policy(root, "lake", policy), **changes)
    write_champion(root, "lake", found)
    return found


def test_champions_of_several_environments_live_side_by_side(tmp_path: Path) -> None:
    write_champion(tmp_path, "lake", champion())
    write_champion(tmp_path, "bandit", champion(run="arms", iteration=15))
    write_champion(tmp_path, "lake", champion(iteration=60))
    found = read_champions(tmp_path)
    assert {name: each.source for name, each in found.items()} == {"bandit": "arms@15", "lake": "lake@60"}
    assert list(json.loads((tmp_path / FILE).read_text())) == ["bandit", "lake"]


@pytest.mark.parametrize("text", ["{", "[]", '{"lake": {}}', '{"lake": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match=r"champion\.json is damaged.*git checkout champion\.json"):
        read_champions(tmp_path)


def test_a_champion_is_kept_in_bfloat16_without_learner_state(tmp_path: Path, tiny_policy: Policy) -> None:
    kept(tmp_path, tiny_policy)
    found = find_champion(tmp_path, None)
    assert (found.identity, found.harness()) == (tiny_policy.identity, tiny_policy.harness())
    stored, weights = found.tensors("weights"), tiny_policy.tensors("weights")
    assert stored is not None and weights is not None and stored.keys() == weights.keys()
    assert all(torch.equal(stored[name], weights[name].to(torch.bfloat16)) for name in weights)
    assert not (found.directory / "learner").exists() and found.tokenizer()

    # What is rounded once stays as it is: a check plays exactly what is recorded.
    again = keep_policy(tmp_path, "again", found)
    assert again == folder_hash(found.directory)


def test_the_champion_must_be_the_recorded_one(tmp_path: Path, tiny_policy: Policy) -> None:
    with pytest.raises(UserError, match="no champion for 'lake'; there is: none yet"):
        find_champion(tmp_path, "lake")
    write_champion(tmp_path, "lake", champion())
    with pytest.raises(
        UserError, match=r"not here; restore it from Git: git checkout champion\.json champions/lake"
    ):
        find_champion(tmp_path, "lake")
    kept(tmp_path, tiny_policy)
    harness = champion_folder(tmp_path, "lake") / "harness.json"
    harness.write_text(harness.read_text().replace("frozen_lake", "frozen_pond"))
    with pytest.raises(UserError, match="this is not the champion; restore it from Git"):
        find_champion(tmp_path, "lake")


def test_one_of_several_champions_must_be_named(tmp_path: Path, tiny_policy: Policy) -> None:
    kept(tmp_path, tiny_policy)
    write_champion(tmp_path, "bandit", champion())
    with pytest.raises(UserError, match=r"whose champion.*bandit, lake"):
        find_champion(tmp_path, None)
    assert find_champion(tmp_path, "lake").identity == tiny_policy.identity


@pytest.mark.parametrize("environment", ["../lake", "/tmp/lake", ".."])
def test_a_harness_leads_no_champion_out_of_its_folder(
    tmp_path: Path, tiny_policy: Policy, environment: str
) -> None:
    with pytest.raises(UserError, match="letters, digits"):
        keep_policy(tmp_path, environment, tiny_policy)


def test_git_keeps_no_large_policies(
    tmp_path: Path, tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder_hash(tiny_policy.directory)
    monkeypatch.setattr(champions, "LIMIT", 1000)
    with pytest.raises(UserError, match=r"MB in bfloat16.*dvc add"):
        keep_policy(tmp_path, "lake", tiny_policy)
    assert not champion_folder(tmp_path, "lake").exists() and folder_hash(tiny_policy.directory) == before


def test_the_champions_of_this_project_are_the_recorded_ones_and_small() -> None:
    found = read_champions(PROJECT)
    assert "bandit" in found
    for environment in found:
        policy = find_champion(PROJECT, environment)
        assert sum(path.stat().st_size for path in policy.directory.rglob("*")) < LIMIT
        assert policy.manifest["run"] == found[environment].run


# --- rivals


def parameters(**run: Any) -> dict[str, Any]:
    """Those of the smoke run."""
    loader = ConfigLoader(
        conf_source=str(PROJECT / "conf"),
        env="smoke",
        base_env="base",
        default_run_env="local",
        merge_strategy={"parameters": "soft"},
    )
    return resolve_parameters(loader["parameters"], "train_starpo_s", {"run": run}, PROJECT).raw


def trained(root: Path, name: str, policy: Policy, *, state: str = "finished", **run: Any) -> str:
    """A run with a policy at its end; returns the name of its base policy."""
    record = new_record(name, "train_starpo_s", parameters(**run))
    record = record.model_copy(update={"state": state, "created": len(list(root.rglob("run.json")))})
    write_record(root, record)
    last = record.parameters["run"]["iterations"]
    weights = policy.tensors("weights")
    assert weights is not None
    new_policy(name, policy.directory, policy.harness(), weights).write(RunPaths(root, name).policy(last))
    return base_of(record)


def test_a_rival_is_the_newest_complete_run_from_the_same_base_policy(
    tmp_path: Path, tiny_policy: Policy
) -> None:
    base = trained(tmp_path, "arms", tiny_policy, iterations=40)
    recorded = champion(base=base, iteration=40)
    assert base.startswith("base-bandit-")
    trained(tmp_path, "equal", tiny_policy, iterations=40, seed=1)
    trained(tmp_path, "short", tiny_policy, iterations=2)
    trained(tmp_path, "cell", tiny_policy, iterations=40, study="smoke")
    trained(tmp_path, "killed", tiny_policy, iterations=40, state="killed")
    rival = newest_rival(tmp_path, recorded)
    assert rival is not None and rival.manifest["run"] == "equal"
    assert newest_rival(tmp_path, recorded.model_copy(update={"iteration": 41})) is None
    assert newest_rival(tmp_path, recorded.model_copy(update={"base": "base-bandit-other"})) is None


def test_a_run_of_another_version_or_without_weights_is_passed_over(
    tmp_path: Path, tiny_policy: Policy
) -> None:
    base = trained(tmp_path, "arms", tiny_policy, iterations=40)
    trained(tmp_path, "pruned", tiny_policy, iterations=40)
    (RunPaths(tmp_path, "pruned").policy(40) / "model.safetensors").unlink()
    (RunPaths(tmp_path, "pruned").policy(40) / "manifest.json").unlink()
    write_record(
        tmp_path, new_record("old", "train_starpo_s", {"of": "then"}).model_copy(update={"state": "finished"})
    )
    rival = newest_rival(tmp_path, champion(base=base, iteration=40))
    assert rival is not None and rival.manifest["run"] == "arms"

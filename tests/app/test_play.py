"""``starpo play``: a harness from elsewhere names no code that would then be run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import engine_config

from starpo.app.commands.play import play_episode
from starpo.environments.registry import unregistered_code
from starpo.errors import UserError
from starpo.store.checksums import checksum
from starpo.store.policies import Policy

MODULE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from starpo.environments.frozen_lake import FrozenLake as Lake
"""


@pytest.fixture
def foreign(tmp_path: Path, tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy whose harness names a module that leaves a file where it is imported."""
    (tmp_path / "foreign_lakes.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "policy_0000"
    folder.symlink_to(tiny_policy.directory)
    return with_environment(tiny_policy, tmp_path, {"name": "foreign_lakes:Lake", "arguments": {}})


def with_environment(policy: Policy, place: Path, environment: dict[str, Any]) -> Policy:
    """A copy of the policy, files linked, with another environment in its harness."""
    folder = place / "copy"
    folder.mkdir(exist_ok=True)
    for path in policy.directory.iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    harness = policy.harness() | {"environment": environment}
    (folder / "harness.json").unlink()
    (folder / "harness.json").write_text(json.dumps(harness))
    files = policy.manifest["files"] | {"harness.json": checksum(folder / "harness.json")}
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(policy.manifest | {"files": files}))
    return Policy.open(folder)


def play(policy: Policy, *trusted: str) -> None:
    engine = engine_config(kind="transformers")
    play_episode(policy, prompt=0, seed=0, temperature=0.5, engine=engine, trusted=trusted)


def test_foreign_code_is_refused_by_name_and_not_run(foreign: Policy, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"not registered here, foreign_lakes:Lake, .*--trust foreign_lakes:Lake"
    ):
        play(foreign)
    assert not (tmp_path / "ran").exists() and "foreign_lakes" not in sys.modules


def test_a_mixture_hides_nothing(foreign: Policy, tmp_path: Path) -> None:
    members = [{"name": "frozen_lake", "weight": 1.0}, {"name": "foreign_lakes:Lake", "weight": 1.0}]
    mixed = with_environment(foreign, tmp_path, {"name": "mixed", "arguments": {}, "mixture": members})
    with pytest.raises(UserError, match="foreign_lakes:Lake"):
        play(mixed)
    assert not (tmp_path / "ran").exists()


def test_code_that_is_trusted_by_name_is_run(foreign: Policy, tmp_path: Path) -> None:
    play(foreign, "foreign_lakes:Lake")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("bandit", {"names": "a:b"}, []),
        ("nowhere:Lake", {}, ["nowhere:Lake"]),
        ("gymnasium", {"id": "CartPole-v1", "success": "terminated"}, []),
        (
            "gymnasium",
            {"id": "a.b:Lake-v0", "describe": "c:d", "success": "e:f"},
            ["a.b:Lake-v0", "c:d", "e:f"],
        ),
        ("verifiers", {"taskset": "anything"}, ["anything"]),
    ],
)
def test_code_among_the_arguments_of_adapters_counts(
    name: str, arguments: dict[str, Any], code: list[str]
) -> None:
    assert unregistered_code(name, arguments) == code

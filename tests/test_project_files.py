"""Files that must be in step with the code: package list, DVC stages, presets, generated pages, documentation."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from starpo.algorithms.registry import advantage_estimator, policy_loss_function
from starpo.app.config_loader import ConfigLoader
from starpo.app.parameters import resolve_parameters
from starpo.config.resolved import Resolved
from starpo.monitor.glossary import markdown
from starpo.store.layout import comparison_name

ROOT = Path(__file__).resolve().parents[1]
PRESETS = sorted(path.parent.name for path in (ROOT / "pipelines").glob("train_*/__init__.py"))


def resolved(pipeline: str, env: str = "local") -> Resolved:
    loader = ConfigLoader(
        conf_source=str(ROOT / "conf"),
        env=env,
        base_env="base",
        default_run_env="local",
        merge_strategy={"parameters": "soft"},
    )
    return resolve_parameters(loader["parameters"], pipeline, {}, ROOT)


def test_every_package_folder_is_listed_in_pyproject():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    library = {path.parent.relative_to(ROOT / "src") for path in (ROOT / "src/starpo").rglob("__init__.py")}
    wiring = {"starpo" / path.parent.relative_to(ROOT) for path in (ROOT / "pipelines").rglob("__init__.py")}
    assert sorted(listed) == sorted(".".join(path.parts) for path in library | wiring)


@pytest.mark.parametrize("env", ["local", "smoke", "paper"])
@pytest.mark.parametrize("pipeline", PRESETS)
def test_every_preset_resolves_to_an_estimator_with_parameters_of_its_own(pipeline: str, env: str):
    algorithm = resolved(pipeline, env).parameters.algorithm
    advantage_estimator(algorithm.estimator, **algorithm.estimator_parameters)
    policy_loss_function(algorithm.policy_loss, **algorithm.policy_loss_parameters)


def test_every_training_pipeline_has_a_preset_and_the_reverse():
    presets = yaml.safe_load((ROOT / "conf/base/parameters_presets.yml").read_text())["presets"]
    assert sorted(presets) == PRESETS


def test_dvc_names_the_default_run_and_its_base_policy():
    default = resolved("train_starpo_s")
    named = yaml.safe_load((ROOT / "dvc.yaml").read_text())["vars"][1]
    assert named == {"base": default.names["base"]}, "put it into dvc.yaml"
    with Repo(str(ROOT)) as repo:
        outs = {Path(out.fs_path).relative_to(ROOT).as_posix() for out in repo.index.outs}
    assert f"data/00_runs/{default.names['name']}" in outs
    last = comparison_name(default.parameters.run.iterations)
    assert f"data/08_reporting/{default.names['name']}/{last}.json" in outs


@pytest.mark.parametrize(
    ("study", "name", "env"),
    [
        ("smoke", "base", "study_smoke"),
        ("starpo", "base", "study_bandit"),
        ("starpo", "base", "study_bandit_fast"),
        ("starpo", "base_frozen_lake", "study_frozen_lake"),
    ],
)
def test_studies_name_their_base_policies(study: str, name: str, env: str):
    variables = yaml.safe_load((ROOT / "studies" / study / "dvc.yaml").read_text())["vars"][0]
    assert variables[name] == resolved("train_starpo_s", env).names["base"], f"put it into {study}/dvc.yaml"


def test_the_page_of_metrics_is_the_generated_one():
    assert (ROOT / "docs/metrics.md").read_text() == markdown(), "run `make docs`"


def test_workflow_files_are_valid():
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(files) == 2
    command = [
        str(Path(sys.executable).with_name("check-jsonschema")),
        "--builtin-schema",
        "vendor.github-workflows",
    ]
    checked = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_workflows_call_only_targets_and_commands_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pipelines = {path.parent.name for path in (ROOT / "pipelines").glob("*/__init__.py")}
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text()
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets, file.name
        assert set(re.findall(r"--pipeline=(\w+)", text)) <= pipelines, file.name
        for env in re.findall(r"--env=(\w+)", text):
            assert (ROOT / "conf" / env).is_dir(), file.name


def test_all_texts_give_the_smoke_run_the_same_time() -> None:
    for name in ("README.md", "conf/README.md", "conf/smoke/parameters.yml", "docs/gates.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert re.findall(r"(?:on Bandit in|a run of) ([a-z ]*minutes?)", text) == ["two to three minutes"], (
            name
        )

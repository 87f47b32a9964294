"""Whether a cell goes on or starts from nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from starpo.errors import UserError
from starpo.store.layout import RunPaths
from starpo.store.runs import State, new_record, read_record, write_record
from starpo.studies.__main__ import main
from starpo.studies.begin import begin, key_of
from starpo.studies.code import BEGINNINGS, code_behind, listed_code

ROOT = Path(__file__).resolve().parents[2]
RUN = "lake-seed0"
STUDY = ROOT / "studies/smoke"
TRAINED_BY = listed_code(STUDY)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a file in every place that a run's numbers come from."""
    shutil.copytree(STUDY, tmp_path / "studies/smoke", ignore=shutil.ignore_patterns("*.lock"))
    for name in (*TRAINED_BY, "conf/base", "conf/study_lake"):
        path = tmp_path / name
        path = path if path.suffix else path / "file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def leave(project: Path, state: State, **process: int) -> Path:
    """What a run that came to ``state`` leaves behind; returns one of its tables."""
    record = new_record(RUN, "train_starpo_s", {"run": {"seed": 0}})
    write_record(project, record.model_copy(update={"state": state, **process}))
    table = project / "data" / "02_rollouts" / RUN / "iter_0000.parquet"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_bytes(b"rows")
    return table


@pytest.mark.parametrize("state", ["killed", "failed"])
def test_an_unfinished_run_of_the_same_code_goes_on(project: Path, state: State) -> None:
    begin(project, project / "studies/smoke", RUN, "study_lake")
    table = leave(project, state)
    assert "goes on" in begin(project, project / "studies/smoke", RUN, "study_lake")
    assert table.exists() and read_record(project, RUN).state == state


def test_a_run_killed_without_a_chance_to_say_so_goes_on(project: Path) -> None:
    begin(project, project / "studies/smoke", RUN, "study_lake")
    table = leave(project, "running", pid=2**22 + 1, process_start=1)
    assert "goes on" in begin(project, project / "studies/smoke", RUN, "study_lake")
    assert table.exists()


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_a_run_at_its_end_is_made_again(project: Path, state: State) -> None:
    begin(project, project / "studies/smoke", RUN, "study_lake")
    table = leave(project, state)
    assert "the old one is removed" in begin(project, project / "studies/smoke", RUN, "study_lake")
    assert not table.exists() and not RunPaths(project, RUN).record.exists()


@pytest.mark.parametrize("changed", [*TRAINED_BY, "conf/base", "conf/study_lake"])
def test_what_other_code_or_parameters_began_is_made_again(project: Path, changed: str) -> None:
    begin(project, project / "studies/smoke", RUN, "study_lake")
    table = leave(project, "killed")
    path = project / changed
    (path if path.is_file() else path / "another").write_text("changed")
    assert "from nothing" in begin(project, project / "studies/smoke", RUN, "study_lake")
    assert not table.exists()


def test_a_configuration_that_is_extended_counts_as_well(project: Path) -> None:
    (project / "conf/study_lake/parameters.yml").write_text("_extends: lakes")
    (project / "conf/lakes").mkdir()
    before = key_of(project, STUDY, "study_lake")
    (project / "conf/lakes/parameters.yml").write_text("rollout: {groups: 2}")
    assert key_of(project, STUDY, "study_lake") != before


@pytest.mark.parametrize("env", ["nope", "", "..", "study_lake/file", "Study_lake"])
def test_an_unknown_environment_is_refused_with_the_known_ones_and_nothing_is_touched(
    project: Path, env: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    begin(project, project / "studies/smoke", RUN, "study_lake")
    table = leave(project, "finished")
    monkeypatch.chdir(project)
    assert main(["begin", "--study=studies/smoke", f"--env={env}", f"--run={RUN}"]) == 1
    message = capsys.readouterr().err
    assert f"--env={env}: there is no folder" in message and "known: study_lake" in message
    assert table.exists()


def test_byte_code_is_no_change(project: Path) -> None:
    before = key_of(project, STUDY, "study_lake")
    cache = project / "src/starpo/agent/__pycache__/parser.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"code")
    assert key_of(project, STUDY, "study_lake") == before


def test_a_run_without_a_key_is_made_again(project: Path) -> None:
    table = leave(project, "killed")
    begin(project, project / "studies/smoke", RUN, "study_lake")
    assert not table.exists()


def test_a_run_that_is_worked_on_is_left_alone(project: Path) -> None:
    table = leave(project, "running", pid=os.getpid())
    with pytest.raises(UserError, match="worked on by process"):
        begin(project, project / "studies/smoke", RUN, "study_lake")
    assert table.exists()


@pytest.mark.parametrize("stage", BEGINNINGS)
@pytest.mark.parametrize("study", sorted(path.parent.name for path in ROOT.glob("studies/*/dvc.yaml")))
def test_the_stages_of_every_study_depend_on_all_code_that_they_import_and_on_no_other_environment(
    study: str, stage: str
) -> None:
    content = yaml.safe_load((ROOT / "studies" / study / "dvc.yaml").read_text())
    tasks = content["vars"][0]["tasks"] if stage == "train" else [content["vars"][0]["tasks"][0]]
    names = [environment_of(f"study_{task}") for task in tasks]
    listed = [name for name in content["stages"][stage]["deps"] if not name.startswith("data/")]
    said = f"python -m starpo.studies code {stage} {' '.join(names)}"
    assert listed == code_behind(ROOT, stage, names), f"the list is what `{said}` prints"
    assert not any("webshop" in name for name in listed)


def environment_of(env: str) -> str:
    files = [ROOT / "conf" / each / "parameters.yml" for each in (env, "base")]
    return next(
        found["name"] for file in files if (found := yaml.safe_load(file.read_text()).get("environment"))
    )


def test_a_module_that_a_stage_comes_to_import_is_noticed() -> None:
    assert "src/starpo/environments/webshop" in code_behind(ROOT, "train", ["webshop_easy"])
    assert "src/starpo/environments/sokoban.py" not in code_behind(ROOT, "train", ["bandit"])
    assert "src/starpo/environments/sokoban_generator.py" in code_behind(ROOT, "train", ["sokoban"])

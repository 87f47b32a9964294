"""Whether a cell goes on or starts from nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from starpo.errors import UserError
from starpo.store.layout import RunPaths
from starpo.store.runs import State, new_record, read_record, write_record
from starpo.studies.__main__ import main
from starpo.studies.begin import TRAINED_BY, begin, key_of

ROOT = Path(__file__).resolve().parents[2]
RUN = "lake-seed0"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a file in every place that a run's numbers come from."""
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
    begin(project, RUN, "study_lake")
    table = leave(project, state)
    assert "goes on" in begin(project, RUN, "study_lake")
    assert table.exists() and read_record(project, RUN).state == state


def test_a_run_killed_without_a_chance_to_say_so_goes_on(project: Path) -> None:
    begin(project, RUN, "study_lake")
    table = leave(project, "running", pid=2**22 + 1, process_start=1)
    assert "goes on" in begin(project, RUN, "study_lake")
    assert table.exists()


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_a_run_at_its_end_is_made_again(project: Path, state: State) -> None:
    begin(project, RUN, "study_lake")
    table = leave(project, state)
    assert "the old one is removed" in begin(project, RUN, "study_lake")
    assert not table.exists() and not RunPaths(project, RUN).record.exists()


@pytest.mark.parametrize("changed", [*TRAINED_BY, "conf/base", "conf/study_lake"])
def test_what_other_code_or_parameters_began_is_made_again(project: Path, changed: str) -> None:
    begin(project, RUN, "study_lake")
    table = leave(project, "killed")
    path = project / changed
    (path if path.is_file() else path / "another").write_text("changed")
    assert "from nothing" in begin(project, RUN, "study_lake")
    assert not table.exists()


@pytest.mark.parametrize("env", ["nope", "", "..", "study_lake/file", "Study_lake"])
def test_an_unknown_environment_is_refused_with_the_known_ones_and_nothing_is_touched(
    project: Path, env: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    begin(project, RUN, "study_lake")
    table = leave(project, "finished")
    monkeypatch.chdir(project)
    assert main(["begin", f"--env={env}", f"--run={RUN}"]) == 1
    message = capsys.readouterr().err
    assert f"--env={env}: there is no folder" in message and "known: study_lake" in message
    assert table.exists()


def test_byte_code_is_no_change(project: Path) -> None:
    before = key_of(project, "study_lake")
    cache = project / "src/starpo/agent/__pycache__/parser.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"code")
    assert key_of(project, "study_lake") == before


def test_a_run_without_a_key_is_made_again(project: Path) -> None:
    table = leave(project, "killed")
    begin(project, RUN, "study_lake")
    assert not table.exists()


def test_a_run_that_is_worked_on_is_left_alone(project: Path) -> None:
    table = leave(project, "running", pid=os.getpid())
    with pytest.raises(UserError, match="running"):
        begin(project, RUN, "study_lake")
    assert table.exists()


@pytest.mark.parametrize("study", sorted(path.parent.name for path in ROOT.glob("studies/*/dvc.yaml")))
def test_the_cells_of_every_study_depend_on_what_the_key_is_made_of(study: str) -> None:
    stages = yaml.safe_load((ROOT / "studies" / study / "dvc.yaml").read_text())["stages"]
    code = [dep for dep in stages["train"]["deps"] if not dep.startswith("data/")]
    assert code == list(TRAINED_BY)
    assert all((ROOT / name).exists() for name in TRAINED_BY)

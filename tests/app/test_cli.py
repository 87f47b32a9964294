"""The command line: mistakes end with code 1 and one message, and the end of a run says where to look."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from projects import SMOKE, SOURCE, Project, new_project

from starpo.app.mistakes import user_mistake
from starpo.cli import _say_where_to_look
from starpo.config.resolved import Source
from starpo.errors import UserError
from starpo.store.run_tables import Run
from starpo.store.runs import State, new_record, write_record
from starpo.store.sources import STAGES


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which nothing was run yet."""
    return new_project(tmp_path_factory.mktemp("empty"))


def refused(project: Project, *arguments: str) -> str:
    """The message of a command that must be refused before any work."""
    message = project.refused(*arguments)
    assert_nothing_was_done(project)
    return message


def assert_nothing_was_done(project: Project) -> None:
    assert not list((project.root / "data").rglob("*.parquet"))
    assert not list((project.root / "data").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ("rollout.grups=3", ["rollout.grups", "unknown parameter"]),
        ("filter.keep_ratio=0", ["filter.keep_ratio", "greater than 0"]),
        ("environment.name=chess", ["'chess'", "bandit"]),
        ("algorithm.estimator=gea", ["'gea'", "gae"]),
        ("base_policy.path=/nowhere/model", ["/nowhere/model", "config.json is missing"]),
    ],
)
def test_a_mistake_in_the_parameters_is_one_clear_message(
    empty: Project, params: str, expected: list[str]
) -> None:
    message = refused(empty, *SMOKE, f"--params={params}")
    for part in expected:
        assert part in message


def test_a_password_is_shown_neither_in_a_message_nor_in_a_traceback(
    empty: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = "--params=base_policy.path=https://ann:made-up-word@host/model"
    assert "ann:***@host" in refused(empty, *SMOKE, params)
    traced = refused(empty, *SMOKE, params, "--traceback")
    assert "Traceback" in traced and "ann:***@host" in traced and "made-up-word" not in traced


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run:\n\tseed: 3\n", 2),
        ("run:\n  seed: [3\n  study: null\n", 3),
        ("run:\n  seed: 3\n  seed: 4\n", 3),
    ],
    ids=["tab", "bracket", "twice"],
)
def test_a_file_of_parameters_that_cannot_be_read_is_one_clear_message(
    tmp_path: Path, text: str, line: int
) -> None:
    project = new_project(tmp_path)
    (project.root / "conf/smoke/parameters_mine.yml").write_text(text)
    message = refused(project, *SMOKE)
    assert f"conf/smoke/parameters_mine.yml, line {line}: " in message
    assert "Correct it there" in message


@pytest.mark.slow
def test_an_unknown_pipeline_is_one_clear_message_with_the_known_ones(empty: Project) -> None:
    done = empty.run("--env=smoke", "--pipeline=train_starpo_x")
    assert done.code == 1 and "Traceback" not in done.text
    message = done.text[done.text.index("Error: ") :]
    assert "train_starpo_x" in message and "train_starpo_s" in message
    assert_nothing_was_done(empty)


def test_an_unknown_kedro_environment_is_one_clear_message(empty: Project) -> None:
    assert "moon" in refused(empty, "--env=moon", "--pipeline=train_starpo_s")


def test_a_stage_without_a_source_says_what_to_run_first(empty: Project) -> None:
    assert "--pipeline=rollout" in refused(empty, "--env=smoke", "--pipeline=reward")


def test_two_pipelines_at_once_are_refused(empty: Project) -> None:
    assert "one pipeline at a time" in refused(empty, "--env=smoke", "--pipelines=rollout,reward")


def said_at_the_end(
    root: Path, capsys: pytest.CaptureFixture, pipeline: str, *, env: str | None, state: State = "finished"
) -> str:
    record = new_record("mine", pipeline, {}).model_copy(update={"state": state})
    write_record(root, record)
    source = Source("theirs", 12) if pipeline in STAGES else None
    names = {"name": "mine", "base": "base-x", "report": "page"}
    current: Any = SimpleNamespace(pipeline=pipeline, names=names, env=env, source=source)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        _say_where_to_look(current)
    return capsys.readouterr().out


@pytest.mark.parametrize("env", [None, "smoke"])
@pytest.mark.parametrize(
    ("pipeline", "table"),
    [
        ("train_starpo_s", "metrics"),
        ("update", "metrics"),
        ("evaluate", "evaluation_summary"),
        ("rollout", "turns"),
        ("reward", "scored"),
        ("rescore", "scored"),
    ],
)
def test_the_end_of_a_run_names_what_it_wrote_and_what_can_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture, pipeline: str, table: str, env: str | None
) -> None:
    said = said_at_the_end(tmp_path, capsys, pipeline, env=env)
    assert f"starpo.open_run('mine').{table}().tail()" in said
    assert callable(getattr(Run, table))
    assert f"  kedro run{' --env=smoke' if env else ''} --pipeline={pipeline} … --params " in said
    assert ("run.iterations=N" in said) is pipeline.startswith("train_")
    assert ("another source than theirs@0012" in said) is (pipeline in STAGES)


def test_a_command_that_a_message_tells_to_give_names_the_environment() -> None:
    """Texts in the code that quote ``kedro run`` with a pipeline get it from ``kedro_run``."""
    quoting = {
        path.name
        for path in (SOURCE / "src").rglob("*.py")
        if re.search(r'^\s+f?"[^"]*kedro run', path.read_text(), re.MULTILINE)
    }
    assert quoting == set()


def test_a_mistake_is_found_behind_what_kedro_wraps_around_it() -> None:
    try:
        try:
            raise UserError("the cause")
        except UserError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError as error:
        assert user_mistake(error) == "the cause"
    assert user_mistake(RuntimeError("a defect of ours")) is None
    assert user_mistake(None) is None


def test_the_test_projects_are_not_the_repository(empty: Project) -> None:
    assert Path(os.path.commonpath([empty.root, Path(__file__)])) != Path(__file__).parents[2]

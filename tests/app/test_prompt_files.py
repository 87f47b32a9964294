"""Prompts in ``conf/``: folders over one another, and a faulty file named with its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import PROJECT, raised_message

from starpo.app.config_loader import ConfigLoader
from starpo.app.parameters import resolve_parameters
from starpo.app.preflight import check_before_work
from starpo.config.prompt import FIELDS, PROMPTS, PromptTemplates
from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.settings import CONFIG_LOADER_ARGS
from starpo.store.runs import check_same, new_record


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "conf/own").mkdir(parents=True)
    write(tmp_path / "conf/base", "mine")
    (tmp_path / "conf/base/parameters.yml").write_text("run: {seed: 0}\n")
    return tmp_path / "conf"


@pytest.fixture
def project_conf(tmp_path: Path) -> Path:
    """A copy of the project's own configuration."""
    return Path(shutil.copytree(PROJECT / "conf", tmp_path / "conf"))


def write(folder: Path, name: str, **templates: str) -> Path:
    place = folder / "prompts" / name
    place.mkdir(parents=True, exist_ok=True)
    for part in FIELDS:
        (place / f"{part}.j2").write_text(templates.get(part, f"{name} says {part}\n"))
    return place


def complaint(conf: Path) -> str:
    loader = ConfigLoader(str(conf), env="own", **CONFIG_LOADER_ARGS)
    return raised_message(UserError, lambda: loader["parameters"])


def test_prompts_come_with_the_parameters_and_a_nearer_folder_prevails(conf: Path) -> None:
    for env, text in (("wide", "wide\n"), ("own", "own\n\n")):
        write(conf / env, env)
        write(conf / env, "mine", system=text)
    (conf / "own/parameters.yml").write_text("_extends: wide\n")
    loader = ConfigLoader(str(conf), env="own", **CONFIG_LOADER_ARGS)
    found = loader["parameters"][PROMPTS]
    assert sorted(found) == ["mine", "own", "wide"]
    assert found["mine"] == {
        "name": "mine",
        "system": "own\n",  # without the line break at the end of the file
        "user": "mine says user",
        "complaint": "mine says complaint",
    }
    loader["parameters"] = {"run": {}}
    assert loader["parameters"] == {"run": {}}, "what a hook has put there stays as it is"


def test_a_missing_template_is_named(conf: Path) -> None:
    (conf / "base/prompts/mine/user.j2").unlink()
    assert complaint(conf).startswith(
        "conf/base/prompts/mine/user.j2 is missing: a prompt has system.j2, user.j2, complaint.j2"
    )


def test_a_template_in_another_encoding_is_named_with_its_line(conf: Path) -> None:
    (conf / "base/prompts/mine/user.j2").write_bytes("one\nzwei Züge".encode("latin-1"))
    assert complaint(conf).startswith("conf/base/prompts/mine/user.j2, line 2: byte 0xfc is not UTF-8")


def test_a_template_that_is_a_folder_is_named(conf: Path) -> None:
    (conf / "base/prompts/mine/user.j2").unlink()
    (conf / "base/prompts/mine/user.j2").mkdir()
    assert complaint(conf).startswith("conf/base/prompts/mine/user.j2: Is a directory")


def test_a_template_with_a_fault_is_named_with_file_line_and_field(conf: Path) -> None:
    write(conf / "own", "other", user="{{ complaint }}\n{{ obs }}\n")
    assert complaint(conf).startswith(
        "conf/own/prompts/other/user.j2, line 2: there is no field 'obs'; a user"
    )
    write(conf / "own", "other", user="{{ complaint }}\n{% if turn > 1 %}\n")
    message = complaint(conf)
    assert message.startswith("conf/own/prompts/other/user.j2, line 2: Unexpected end of template")
    assert "2 | {% if turn > 1 %}" in message


def resolved(folder: Path, prompt: str) -> Resolved:
    loader = ConfigLoader(str(folder), env="smoke", **CONFIG_LOADER_ARGS)
    return resolve_parameters(
        dict(loader["parameters"]), "train_starpo_s", {"agent": {"prompt": prompt}}, folder
    )


def test_a_prompt_is_chosen_by_name_and_stored_as_text(project_conf: Path) -> None:
    write(project_conf / "smoke", "mine", system="{{ rules }}")
    found = resolved(project_conf, "mine")
    texts = {
        "name": "mine",
        "system": "{{ rules }}",
        "user": "mine says user",
        "complaint": "mine says complaint",
    }
    assert found.raw["agent"]["prompt"] == texts
    assert found.parameters.agent.prompt == PromptTemplates(**texts)
    assert found.names["base"] != resolved(project_conf, "starpo").names["base"], (
        "another harness, another base"
    )
    message = raised_message(UserError, lambda: resolved(project_conf, "mein"))
    assert message.startswith(
        "agent.prompt = 'mein': there is no such prompt; there are mine, paper, ragen, starpo."
    )


def test_a_changed_template_is_a_changed_parameter(project_conf: Path) -> None:
    write(project_conf / "smoke", "mine", system="{{ rules }}")
    before = resolved(project_conf, "mine")
    record = new_record("mine", before.pipeline, before.raw)
    check_same(record, resolved(project_conf, "mine").raw)
    write(project_conf / "smoke", "mine", system="{{ rules }}!")
    message = raised_message(UserError, lambda: check_same(record, resolved(project_conf, "mine").raw))
    assert 'agent.prompt.system: "{{ rules }}" → "{{ rules }}!"' in message


def test_a_changed_preset_of_ours_is_a_changed_parameter_too(project_conf: Path) -> None:
    before = resolved(project_conf, "starpo")
    assert "prompt" not in before.raw["agent"], "runs from before there were templates go on"
    record = new_record("mine", before.pipeline, before.raw)
    (project_conf / "base/prompts/starpo/system.j2").write_text("{{ rules }}")
    message = raised_message(UserError, lambda: check_same(record, resolved(project_conf, "starpo").raw))
    assert 'agent.prompt.system: (absent) → "{{ rules }}"' in message


def test_templates_written_among_the_parameters_are_checked_before_any_work(tmp_path: Path) -> None:
    loader = ConfigLoader(str(PROJECT / "conf"), env="smoke", **CONFIG_LOADER_ARGS)
    mine = {"agent": {"prompt": {"name": "mine", "user": "{{ obs }}"}}}
    found = resolve_parameters(dict(loader["parameters"]), "train_starpo_s", mine, tmp_path)
    message = raised_message(UserError, lambda: check_before_work(tmp_path, found))
    assert message.startswith("agent.prompt.user, line 1: there is no field 'obs'")
    assert not list(tmp_path.iterdir())

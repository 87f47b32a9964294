"""Broken files in ``conf/``: one message with the file, the line and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import raised_message
from hypothesis import given
from hypothesis import strategies as st
from kedro.config import MissingConfigException

from starpo.app.config_loader import ConfigLoader, fault
from starpo.errors import UserError
from starpo.settings import CONFIG_LOADER_ARGS


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of configuration whose base is sound."""
    for env in ("base", "local"):
        (tmp_path / "conf" / env).mkdir(parents=True)
    (tmp_path / "conf/base/parameters.yml").write_text("run:\n  seed: 0\n")
    return tmp_path / "conf"


def loader(conf: Path) -> ConfigLoader:
    return ConfigLoader(str(conf), **CONFIG_LOADER_ARGS)


def complaint(conf: Path) -> str:
    return raised_message(UserError, lambda: loader(conf)["parameters"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run:\n\tseed: 3\n", ["line 2: found character '\\t'", "2 |     seed: 3"]),
        ("rollout:\n  a: [1, 2\n  b: 3\n", ["line 3", "from line 2 on", "2 |   a: [1, 2", "3 |   b: 3"]),
        ("rollout:\n  a: {b: 1\n", ["line 3", "from line 2 on", "2 |   a: {b: 1"]),
        ("run:\n  seed: 1\n  seed: 2\n", ["line 3: found duplicate key seed", "3 |   seed: 2"]),
        ("run:\n  name: 'abc\n", ["unexpected end of stream", "2 |   name: 'abc"]),
        ("run:\n  seed: 1\n iterations: 3\n", ["line 3", "3 |  iterations: 3"]),
        ("run: *nothing\n", ["line 1: found undefined alias 'nothing'"]),
        ("run:\n  seed: \x01\n", ["line 2: character #x0001", "Remove it"]),
        ("run:\n  name: é\n".encode("latin-1"), ["line 2: byte 0xe9 is not UTF-8"]),
        ("run:\n  seed: ${nowhere\n", ["key run.seed", "${nowhere"]),
        ("- run\n- seed\n", ["expected keys with values"]),
        ("5\n", ["expected keys with values"]),
    ],
)
def test_a_broken_file_is_named_with_its_line(conf: Path, text: str | bytes, expected: list[str]) -> None:
    content = text.encode() if isinstance(text, str) else text
    (conf / "local/parameters_mine.yml").write_bytes(content)
    message = complaint(conf)
    assert message.startswith("conf/local/parameters_mine.yml")
    assert "orrect" in message or "Remove" in message or "Save" in message
    for part in expected:
        assert part in message


def test_a_key_in_two_files_of_a_folder_names_both(conf: Path) -> None:
    (conf / "base/parameters_more.yml").write_text("run:\n  seed: 1\n")
    message = complaint(conf)
    for part in ("base/parameters.yml", "base/parameters_more.yml", "run.seed", "one file"):
        assert part in message


def test_an_interpolation_that_leads_nowhere_names_its_key(conf: Path) -> None:
    (conf / "local/parameters.yml").write_text("run:\n  seed: ${nowhere}\n")
    message = complaint(conf)
    assert message.startswith("conf/*/parameters*.yml, key run.seed") and "'nowhere'" in message


def test_a_sound_configuration_loads_as_with_kedro_s_own_loader(conf: Path) -> None:
    (conf / "local/parameters.yml").write_text("run:\n  iterations: 3\n")
    assert loader(conf)["parameters"] == {"run": {"seed": 0, "iterations": 3}}
    with pytest.raises(MissingConfigException):
        loader(conf)["catalog"]


def test_arguments_in_base_go_with_the_name_that_a_folder_replaces(conf: Path) -> None:
    (conf / "base/parameters_task.yml").write_text(
        "environment: {name: lake, arguments: {size: 4}, mixture: [{name: lake, weight: 1}], workers: 2}\n"
        "algorithm: {estimator: gae, estimator_parameters: {lam: 1.0}, policy_loss_parameters: {clip_low: 0.2}}\n"
        "evaluation: {suites: {other: {environment: lake, arguments: {size: 8}, prompts: 8}}}\n"
    )
    (conf / "local/parameters_mine.yml").write_text(
        "environment: {name: mine:Task, arguments: {depth: 2}}\n"
        "algorithm: {estimator: grpo}\n"
        "evaluation: {suites: {other: {environment: sokoban}}}\n"
    )
    loaded = loader(conf)["parameters"]
    mine = {"name": "mine:Task", "arguments": {"depth": 2}, "mixture": None, "workers": 2}
    assert loaded["environment"] == mine
    assert loaded["algorithm"]["estimator_parameters"] == {}
    assert loaded["algorithm"]["policy_loss_parameters"] == {"clip_low": 0.2}
    assert loaded["evaluation"]["suites"]["other"] == {
        "environment": "sokoban",
        "arguments": {},
        "prompts": 8,
    }


def extending(conf: Path, **folders: str) -> Path:
    for name, text in folders.items():
        (conf / name).mkdir(exist_ok=True)
        (conf / name / "parameters.yml").write_text(text)
    return conf


def test_a_folder_says_only_in_what_it_differs_from_the_one_it_extends(conf: Path) -> None:
    extending(
        conf,
        paper="environment: {name: sokoban, arguments: {size: 6}}\nrun: {iterations: 200, keep_last: 2}\n",
        larger="_extends: paper\nrun: {keep_last: 1}\n",
        local="_extends: larger\nenvironment: {name: webshop}\n",
    )
    assert loader(conf)["parameters"] == {
        "environment": {"name": "webshop", "arguments": {}},
        "run": {"seed": 0, "iterations": 200, "keep_last": 1},
    }


def test_what_is_asked_for_on_the_command_line_outranks_every_folder(conf: Path) -> None:
    extending(conf, paper="run: {seed: 1}\n", local="_extends: paper\nrun: {seed: 2}\n")
    asked = ConfigLoader(str(conf), runtime_params={"run": {"seed": 3}}, **CONFIG_LOADER_ARGS)
    assert asked["parameters"] == {"run": {"seed": 3}}


@pytest.mark.parametrize("name", ["papre", "base", "local", "[paper]", "5"])
def test_a_folder_that_extends_none_is_refused_with_the_known_ones(conf: Path, name: str) -> None:
    message = complaint(extending(conf, paper="run: {seed: 1}\n", local=f"_extends: {name}\n"))
    assert message.startswith("conf/local: _extends is ") and name.strip("[]") in message
    assert message.endswith("name another folder of conf: paper")


def test_folders_that_extend_each_other_are_refused(conf: Path) -> None:
    message = complaint(extending(conf, one="_extends: two", two="_extends: one", local="_extends: one"))
    assert message == "conf/two: _extends is 'one'; name another folder of conf: "


def test_a_broken_file_of_an_extended_folder_is_named_with_its_line(conf: Path) -> None:
    extending(conf, paper="run:\n  seed: [1\n", local="_extends: paper\n")
    assert complaint(conf).startswith("conf/paper/parameters.yml, line 3: ")


NAMES = st.text("abcdefgh_", min_size=1, max_size=5)


@given(tree=st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(), max_size=3), min_size=1, max_size=3))
def test_the_line_that_is_named_is_the_one_that_was_broken(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, dict[str, Any]]
) -> None:
    lines = [
        line
        for name, keys in tree.items()
        for line in (f"{name}:", *(f"  {k}: {v}" for k, v in keys.items()))
    ]
    path = tmp_path_factory.mktemp("conf") / "parameters.yml"
    path.write_text("\n".join(lines) + "\n")
    assert fault(path) is None
    for number in range(len(lines)):
        broken = [*lines[:number], f"\t{lines[number].strip()}", *lines[number + 1 :]]
        path.write_text("\n".join(broken) + "\n")
        assert f"line {number + 1}: found character '\\t'" in (fault(path) or "")


def test_a_broken_file_of_credentials_is_named_without_its_lines(conf: Path) -> None:
    (conf / "local/credentials.yml").write_text("mlflow:\n  password: 'made-up-word\n")
    message = raised_message(UserError, lambda: loader(conf)["credentials"])
    assert message.startswith("conf/local/credentials.yml, line 3")
    assert "made-up-word" not in message

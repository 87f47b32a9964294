"""docs/add_an_environment.md, done as it says: every block of the page is executed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from starpo.app.config_loader import ConfigLoader
from starpo.config.environment import EnvironmentConfig
from starpo.environments.contract import check_environment
from starpo.environments.registry import make
from starpo.environments.splits import Split, draw_instance
from starpo.seeds import Purpose, SeedKey
from starpo.settings import CONFIG_LOADER_ARGS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/add_an_environment.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder with the files of the page, as an installed distribution."""
    environment, test, words = blocks("python")
    (tmp_path / "number_line.py").write_text(environment)
    (tmp_path / "test_number_line.py").write_text(test)
    (tmp_path / "taxi_words.py").write_text(words)
    (toml,) = blocks("toml")
    (tmp_path / "pyproject.toml").write_text(toml)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("number_line", "taxi_words"):
        sys.modules.pop(name, None)


def test_the_documented_environment_keeps_the_contract_under_its_path(folder: Path) -> None:
    check_environment(make("number_line:NumberLine", length=5))


def test_the_documented_tests_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_number_line.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_documented_package_offers_the_name(folder: Path) -> None:
    """Built with the tool that installs it; only the resulting metadata is put on the path."""
    done = subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sys.path.append(str(folder / "."))  # another path, so that the entry points are read again
    try:
        assert make("number_line").rules.startswith("You stand on a line")
    finally:
        sys.path.remove(str(folder / "."))


def layered(folder: Path, text: str) -> dict:
    """The parameters of a configuration folder that holds ``text``, over those of ``conf/base/``."""
    shutil.copytree(ROOT / "conf/base", folder / "conf/base")
    (folder / "conf/mine").mkdir()
    (folder / "conf/mine/parameters.yml").write_text(text)
    return ConfigLoader(str(folder / "conf"), env="mine", **CONFIG_LOADER_ARGS)["parameters"]


@pytest.mark.parametrize(
    "number",
    [n for n, text in enumerate(blocks("yaml")) if text.lstrip().startswith(("environment:", "run:"))],
)
def test_the_documented_configurations_name_environments_that_play(folder: Path, number: int) -> None:
    text = blocks("yaml")[number]
    if "reasoning_gym" in text:
        pytest.importorskip("reasoning_gym")
    section = layered(folder, text)["environment"]
    if section["name"] == "number_line":
        section["name"] = "number_line:NumberLine"  # without installing it
    for member in EnvironmentConfig(**section).members:
        env = make(member.name, **member.arguments)
        check_environment(env, name=member.known_as)
        for split in Split:
            draw_instance(env, split=split, key=SeedKey(0, Purpose.INSTANCE, split.value))

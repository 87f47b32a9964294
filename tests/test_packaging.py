"""What is installed: all packages, each pipeline by itself, exact pins without a host."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_type_hints

import pytest
from kedro.pipeline import Pipeline
from projects import SOURCE
from pydantic import BaseModel

from starpo.app.parameters import configured_parameters

PYPROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text())
PIPELINES = sorted(path.parent.name for path in (SOURCE / "pipelines").glob("*/__init__.py"))
PINS = [SOURCE / "requirements" / name for name in ("cpu.txt", "gpu.txt")]


def packages_in(folder: Path, prefix: str) -> set[str]:
    """Dotted names of all folders with an ``__init__.py``, ``folder`` itself as ``prefix``."""
    found = set()
    for file in folder.rglob("__init__.py"):
        found.add(".".join((prefix, *file.parent.relative_to(folder).parts)))
    return found


def test_the_listed_packages_are_the_folders() -> None:
    expected = packages_in(SOURCE / "src" / "starpo", "starpo")
    expected |= packages_in(SOURCE / "pipelines", "starpo.pipelines")
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(expected)


def test_every_folder_with_code_is_a_package() -> None:
    for top in (SOURCE / "src" / "starpo", SOURCE / "pipelines"):
        for folder in {path.parent for path in top.rglob("*.py")}:
            assert (folder / "__init__.py").exists(), folder


IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    for module in [module for module in sys.modules if module.split(".")[0] == "starpo"]:
        del sys.modules[module]
    assert importlib.import_module(f"starpo.pipelines.{name}").create_pipeline
    heavy = {"torch", "vllm", "deepspeed", "mlflow", "great_expectations"} & set(sys.modules)
    assert not heavy, f"{name} imports {heavy}"
"""


def test_every_pipeline_is_importable_alone_without_the_heavy_libraries() -> None:
    # In a process that has none of them, each from scratch.
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *PIPELINES],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_folder_creates_a_pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SOURCE)
    created = importlib.import_module(f"starpo.pipelines.{name}").create_pipeline(configured_parameters())
    assert isinstance(created, Pipeline)
    assert created.nodes
    for node in created.nodes:
        # Kedro makes typed records of parameters where it can resolve all of a function's types, else plain dicts.
        hints = get_type_hints(node.func).values()
        typed = [hint for hint in hints if isinstance(hint, type) and issubclass(hint, BaseModel)]
        assert len(typed) == sum(entry.startswith("params:") for entry in node.inputs), node.name


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
def test_pins_are_exact_and_name_no_host(path: Path) -> None:
    text = path.read_text()
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    pins = [line for line in lines if line]
    assert "torch==2.13.0" in pins
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|@ ", "\n".join(pins))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+(\[[^]]+\])?==[^\s;]+(\s*;.*)?", pin) for pin in pins)


def test_no_requirements_file_names_a_host() -> None:
    for path in (SOURCE / "requirements").iterdir():
        assert not re.search(r"https?://|index-url|find-links", path.read_text()), path


def test_telemetry_is_off() -> None:
    assert (SOURCE / ".telemetry").read_text().strip() == "consent: false"

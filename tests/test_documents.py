"""The pages say what is there: links and their anchors, files, modules, commands, and the log's index."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from starpo.app.commands.main import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "conf/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What pages tell a reader to make, or use as placeholders.
MADE_BY_THE_READER = {"conf/local", "conf/number_line", "conf/study_sokoban"}
PLACEHOLDERS = {"NAME", "P", "ENV", "number_line"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def code_of(page: Path) -> str:
    """Code blocks and code spans of a page, a line each."""
    text = page.read_text()
    fenced = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}.+$", text, re.MULTILINE)
    return "\n".join([*fenced, *indented, *re.findall(r"`([^`\n]+)`", text)])


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_lead_to_files_and_headings(page: Path):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pages
def test_files_that_a_page_names_exist(page: Path):
    folders = r"(?:src/starpo|tests|pipelines|conf|benchmarks|docs|studies|notebooks|requirements)"
    for name in re.findall(rf"(?<![\w/.]){folders}/[\w./-]*[\w/]", code_of(page)):
        if not any(name.startswith(made) for made in MADE_BY_THE_READER):
            assert (ROOT / name).exists(), name


@pages
def test_modules_and_names_of_the_library_exist(page: Path):
    text = page.read_text()
    names = set(re.findall(r"\bstarpo(?:\.[a-z]\w*)+(?![\w/-])", text))
    for module, imported in re.findall(r"from (starpo[\w.]*) import ([\w, ]+)", text):
        names |= {f"{module}.{name.strip()}" for name in imported.split(",")}
    for name in sorted(names):
        pkgutil.resolve_name(name)


@pages
def test_commands_that_a_page_gives_exist(page: Path, capsys: pytest.CaptureFixture[str]):
    code = code_of(page)
    pipelines = {path.parent.name for path in (ROOT / "pipelines").glob("*/__init__.py")}
    environments = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"--pipeline=(\w+)", code)) <= pipelines | PLACEHOLDERS
    assert set(re.findall(r"--env=(\w+)", code)) <= environments | PLACEHOLDERS
    assert set(re.findall(r"^ *make ([\w-]+)", code, re.MULTILINE)) <= targets
    for command in set(re.findall(r"^ *starpo ([a-z]+(?: [a-z]+\b(?!\.))?)", code, re.MULTILINE)):
        with pytest.raises(SystemExit) as ended:
            main([*command.split(), "--help"])
        assert ended.value.code == 0, f"starpo {command}: {capsys.readouterr().err}"


def test_every_pipeline_and_configuration_has_a_row():
    pipelines = {path.parent.name for path in (ROOT / "pipelines").glob("*/__init__.py")}
    folders = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
    for page, things, name in (
        (ROOT / "README.md", pipelines, r"`(\w+)`"),
        (ROOT / "conf/README.md", folders, r"`(\w+)/`"),
    ):
        rows = re.findall(r"^\| (`[^|]+) \|", page.read_text(), re.MULTILINE)
        missing = things - set(re.findall(name, "\n".join(rows)))
        assert not missing, f"{page.relative_to(ROOT)} has no row for {sorted(missing)}"


def test_the_log_has_a_row_for_every_entry_oldest_first():
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (ROOT / "docs/experiments/README.md").read_text())
    entries = {path.name for path in (ROOT / "docs/experiments").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(entries)
    dates = [name[:10] for name in listed]
    assert dates == sorted(dates)


@pytest.mark.parametrize("page", ["faults.md", "security.md"])
def test_every_row_names_a_test_that_exists(page: str):
    text = (ROOT / "docs" / page).read_text()
    rows = [
        row
        for row in text.splitlines()
        if row.startswith("| ") and not row.startswith(("| Fault ", "| Data "))
    ]
    for row in rows:
        file, name = re.search(r"`(tests/\S+?)::(\w+)` \|$", row).groups()
        assert f"def {name}(" in (ROOT / file).read_text(), row

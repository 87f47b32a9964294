"""The notebooks: stored without outputs, and they run on whatever runs there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from projects import SOURCE, TRAINED, Project

NOTEBOOKS = sorted((SOURCE / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare_runs", "explore_trajectories"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("smoke")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_on_the_smoke_run(
    path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("STARPO_RUN", TRAINED)
    monkeypatch.setenv("STARPO_RUNS", f"{TRAINED}*")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(project.root)}}
    )
    done = client.execute()
    assert TRAINED in said(done)


def said(notebook: Any) -> str:
    """All that its cells printed and showed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(shown)

"""What ``run.source`` and ``run.fork_from`` may name."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import build_policy

from starpo.errors import UserError
from starpo.store.sources import parse_source


@pytest.mark.parametrize("text", ["../x@3", "/etc@0", "a/b@latest", "..@0", "@3", ""])
def test_a_path_is_no_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="letters, digits"):
        parse_source(tmp_path, text, "policy")


def test_a_policy_outside_of_the_project_is_not_reached_by_its_path(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data/06_models").mkdir(parents=True)
    build_policy(tmp_path / "elsewhere")
    for text in ("../../../elsewhere", f"{tmp_path}/elsewhere"):
        with pytest.raises(UserError, match="run name"):
            parse_source(project, f"{text}@latest", "policy")

"""A whole run scored anew."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from projects import ITERATIONS, TRAINED, Project

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smoke")]

LAST = 4
"""The test ends before the run does: ``RUN@ITERATION`` goes so far and no further."""


def test_a_whole_run_is_scored_anew_under_its_own_name(project: Project) -> None:
    done = project.run(
        "--env=smoke",
        "--pipeline=rescore",
        f"--params=run.source={TRAINED}@{LAST},run.name=stricter,reward.terms.format_penalty.penalty=0.5",
    )
    assert done.code == 0, done.text
    rows = json.loads((project.folder("08_reporting", "stricter") / "rescoring.json").read_text())[
        "iterations"
    ]
    assert [row["iteration"] for row in rows] == list(range(LAST + 1))
    changed = 0
    for row in rows:
        file = f"iter_{row['iteration']:04d}.parquet"
        old, new = (pq.read_table(project.folder("03_scored", run) / file) for run in (TRAINED, "stricter"))
        # A badly formatted turn costs 0.5 in place of 0.1; these trajectories have one turn.
        lost = 0.4 * (1 - old["format_valid_share"].to_numpy())
        assert new["return"].to_numpy() == pytest.approx(old["return"].to_numpy() - lost)
        assert row["return_before"] == pytest.approx(old["return"].to_numpy().mean())
        assert row["return_after"] == pytest.approx(new["return"].to_numpy().mean())
        changed += int((lost > 0).sum())
    assert changed, "no answer was badly formatted: the new reward changed nothing"
    assert "Before and after re-scoring" in done.text
    assert len(list(project.folder("03_scored", TRAINED).glob("iter_*.parquet"))) == ITERATIONS
    assert not project.folder("06_models", "stricter").exists()

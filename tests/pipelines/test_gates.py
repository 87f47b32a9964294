"""Gates in a real Kedro run: a quarantined row, a stopped table, and the same command going on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import EVERY, GROUP_SIZE, GROUPS, TRAINED, Project

from starpo.store.schemas import TURNS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smoke")]


def spoil(project: Project, run: str, faulty: Callable[[dict[str, Any]], bool], **changes: Any) -> None:
    """Rollouts of the smoke run under the name ``run``, some rows changed."""
    name = f"iter_{EVERY:04d}.parquet"
    rows = pq.read_table(project.folder("02_rollouts", TRAINED) / name).to_pylist()
    folder = project.folder("02_rollouts", run)
    folder.mkdir(parents=True)
    changed = [row | changes if faulty(row) else row for row in rows]
    pq.write_table(pa.Table.from_pylist(changed, schema=TURNS), folder / name)


def test_too_many_faulty_rows_stop_the_run_and_are_quarantined_where_so_many_may_be(project: Project) -> None:
    spoil(project, "bad", lambda row: row["member"] == 0, reward=99.0)
    command = ("--env=smoke", "--pipeline=reward", f"--params=run.source=bad@{EVERY:04d}")
    stopped = project.run(*command)
    assert stopped.code == 1
    assert "Traceback" not in stopped.text
    folder = project.folder("03_scored", f"reward-bad-{EVERY:04d}")
    for part in (
        f"{GROUPS} of {GROUPS * GROUP_SIZE} trajectories",
        "group 0 member 0",
        "max_quarantined_share",
    ):
        assert part in stopped.text
    assert pq.read_table(folder / "rejected" / f"iter_{EVERY:04d}.parquet").num_rows == GROUPS * GROUP_SIZE
    assert not (folder / f"iter_{EVERY:04d}.parquet").exists()

    goes_on = project.run(*command[:2], command[2] + ",gates.max_quarantined_share=0.5")
    assert goes_on.code == 0, goes_on.text
    share = f"{GROUPS} of {GROUPS * GROUP_SIZE} trajectories"
    assert f"quarantined {share} (return_out_of_range {GROUPS})" in goes_on.text
    assert "Data Docs: data/08_reporting/" in goes_on.text
    scored = pq.read_table(folder / f"iter_{EVERY:04d}.parquet").to_pylist()
    faulty = [row for row in scored if row["quarantined"]]
    assert {(row["member"], row["kept"], row["reason"]) for row in faulty} == {
        (0, False, "return_out_of_range")
    }
    assert len(faulty) == GROUPS and any(row["kept"] for row in scored)

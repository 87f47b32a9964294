"""Checksums in a run's record: every change of a file is seen before it is used."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starpo.app.datasets import JSONFileDataset, TableDataset
from starpo.errors import UserError
from starpo.store import checksums
from starpo.store.layout import Layer, RunPaths
from starpo.store.reading import read_object, read_table
from starpo.store.schemas import SCORED


def stored(root: Path) -> tuple[RunPaths, Path]:
    """A run with one table and one file of metrics, and the table's path."""
    paths = RunPaths(root, "run")
    table = paths.table(Layer.SCORED, 1)
    TableDataset(filepath=str(table), table="scored").save(SCORED.empty_table())
    JSONFileDataset(filepath=str(table.parents[2] / "05_updates" / "run" / "iter_0001.json")).save(
        {"loss": 1.5}
    )
    return paths, table


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_file_is_not_read(tmp_path: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        paths, table = stored(Path(folder))
        metrics = paths.metrics()[1]
        assert checksums.faults(paths) == {}
        file, read = data.draw(
            st.sampled_from(
                [(table, lambda: read_table(table, "scored")), (metrics, lambda: read_object(metrics))]
            )
        )
        read()
        content = bytearray(file.read_bytes())
        where = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[where] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[where:]
        file.write_bytes(content)
        assert checksums.faults(paths) == {file: "damaged"}
        with pytest.raises(UserError, match=r"is not what the run wrote .*`starpo runs verify run`"):
            read()


def test_a_file_between_its_line_and_its_name_is_the_old_one_and_sound(tmp_path: Path) -> None:
    paths, table = stored(tmp_path)
    other = tmp_path / "other"
    other.write_text("the next content")
    checksums.record(table, other)  # then the process is killed
    assert checksums.faults(paths) == {}
    other.replace(table)
    assert checksums.faults(paths) == {}
    checksums.record(table.with_name("iter_0002.parquet"), table)
    assert checksums.faults(paths) == {table.with_name("iter_0002.parquet"): "missing"}


def test_a_broken_last_line_hides_nothing_else(tmp_path: Path) -> None:
    paths, table = stored(tmp_path)
    with paths.files.open("a") as file:
        file.write('{"path": "data/03_sco')
    table.unlink()
    assert checksums.faults(paths) == {table: "missing"}


def test_a_lost_file_is_known_and_counts_as_there(tmp_path: Path) -> None:
    paths, table = stored(tmp_path)
    dataset = TableDataset(filepath=str(table), table="scored")
    table.unlink()
    assert not dataset.exists()
    checksums.record_lost(table)
    assert dataset.exists() and checksums.faults(paths) == {}
    assert checksums.lost_files(paths) == ["data/03_scored/run/iter_0001.parquet"]
    dataset.save(SCORED.empty_table())
    assert checksums.lost_files(paths) == []


def test_a_table_of_no_run_is_read_without_a_record(tmp_path: Path) -> None:
    file = tmp_path / "somewhere" / "table.parquet"
    TableDataset(filepath=str(file), table="scored").save(SCORED.empty_table())
    assert read_table(file, "scored").num_rows == 0
    assert not list(tmp_path.rglob("files.jsonl"))

"""The column ``chain_start``: written only with windows, read always, and never in a first turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import raised_message, turn_row, turns_table
from kedro.io import DatasetError

from starpo.app.datasets import TableDataset
from starpo.app.mistakes import user_mistake
from starpo.errors import UserError
from starpo.store.reading import read_table
from starpo.store.schemas import TURNS, WINDOWED_TURNS, WINDOWED_VERSION


def windowed(*starts: bool | None) -> pa.Table:
    """One trajectory with a turn for each of ``starts``."""
    rows = [
        turn_row(turn=number) | {"chain_start": start, "schema_version": WINDOWED_VERSION}
        for number, start in enumerate(starts)
    ]
    return pa.Table.from_pylist(rows, schema=WINDOWED_TURNS)


def dataset(path: Path) -> TableDataset:
    return TableDataset(filepath=str(path), table="turns")


def refusal(path: Path, table: Any) -> str:
    with pytest.raises(DatasetError) as caught:
        dataset(path).save(table)
    message = user_mistake(caught.value)
    assert message is not None, caught.value
    return message


@pytest.mark.parametrize("streamed", [False, True])
def test_windowed_turns_are_read_as_they_were_written(tmp_path: Path, streamed: bool) -> None:
    table, stored = windowed(False, False, True), dataset(tmp_path / "turns.parquet")
    stored.save(iter(table.to_batches()) if streamed else table)
    assert stored.load().equals(table)
    assert pq.read_schema(tmp_path / "turns.parquet").names == WINDOWED_TURNS.names


def test_a_table_without_windows_is_stored_without_the_column_and_read_with_false(tmp_path: Path) -> None:
    path = tmp_path / "turns.parquet"
    dataset(path).save(turns_table(turn_row(turn=0), turn_row(turn=1)))
    assert pq.read_schema(path).names == TURNS.names
    found = read_table(path, "turns")
    assert found.schema == WINDOWED_TURNS
    assert found["chain_start"].to_pylist() == [False, False]
    assert set(found["schema_version"].to_pylist()) == {1}
    both = pa.concat_tables([found, windowed(False, True)])
    assert both["chain_start"].to_pylist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("starts", "complaint"),
    [
        ((True, False), "(chain_start = True)"),
        ((False, None), "(chain_start = null)"),
    ],
)
def test_a_first_turn_that_starts_anew_or_an_unknown_start_is_rejected(
    tmp_path: Path, starts: tuple[Any, ...], complaint: str
) -> None:
    assert complaint in refusal(tmp_path / "turns.parquet", windowed(*starts))
    assert (tmp_path / "rejected" / "turns.parquet").exists()


def test_version_2_without_its_column_is_no_table_of_turns(tmp_path: Path) -> None:
    path = tmp_path / "turns.parquet"
    pq.write_table(turns_table(turn_row(schema_version=WINDOWED_VERSION)), path)
    assert "'chain_start' is missing" in raised_message(UserError, lambda: read_table(path, "turns"))

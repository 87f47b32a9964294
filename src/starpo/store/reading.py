"""Reading what a run stored, with errors that name the file and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.errors import UserError
from starpo.store.checksums import check
from starpo.store.schemas import (
    DETAILED_SCORED,
    DETAILED_VERSION,
    SCHEMA_VERSION,
    WINDOWED_TURNS,
    WINDOWED_VERSION,
    schema_of,
)

#: Tables with more columns than the first version has, by kind: their version and schema.
_LATER = {"turns": (WINDOWED_VERSION, WINDOWED_TURNS), "scored": (DETAILED_VERSION, DETAILED_SCORED)}


def read_table(path: Path, kind: str) -> pa.Table:
    """A Parquet table of ours, checked for version and columns.

    Turns have the column ``chain_start`` always: a table that was written without windows gets one of False.

    Args:
        path: the file.
        kind: key of ``TABLES``: turns, scored, updates or labels.

    Raises:
        UserError: the file is missing, corrupt or not what its run recorded, or of an unknown schema version or
            another table.
    """
    check(path)
    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such table; run the stage that writes it first") from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} is corrupt or half-written ({str(error).splitlines()[0]}). "
            "Remove the file and run again."
        ) from None
    versions = (
        set(table["schema_version"].unique().to_pylist())
        if "schema_version" in table.column_names
        else {None}
    )
    later, wide = _LATER.get(kind, (SCHEMA_VERSION, None))
    known = sorted({SCHEMA_VERSION, later})
    if unknown := versions.difference(known):
        raise UserError(
            f"{path}: schema_version {unknown.pop()!r} is unknown; this version of starpo reads "
            f"{' and '.join(map(str, known))}. Open the run with the version that wrote it."
        )
    expected = wide if wide is not None and later in versions else schema_of(kind, table.column_names)
    if odd := set(table.column_names) ^ set(expected.names):
        raise UserError(f"{path} is not a table of {kind}: column {min(odd)!r} is missing or too much")
    return _with_chain_starts(table) if kind == "turns" else table


def _with_chain_starts(turns: pa.Table) -> pa.Table:
    if "chain_start" in turns.column_names:
        return turns
    field = WINDOWED_TURNS.field("chain_start")
    starts = pa.array([False] * turns.num_rows, field.type)
    return turns.add_column(WINDOWED_TURNS.get_field_index("chain_start"), field, starts)


def read_json(path: Path) -> Any:
    """The JSON value in a file. Raises ``UserError`` naming it where it cannot be read, or is not what was written."""
    check(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is corrupt or half-written ({error}). Remove the file and run again."
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ``UserError`` naming it where there is none."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} is corrupt (not a JSON object). Remove the file and run again.")
    return value

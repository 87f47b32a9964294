"""Custom Kedro datasets: atomic writes, checked tables, policies, and the shared engine and learner."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from kedro.io import AbstractDataset

from starpo.errors import UserError
from starpo.gates.measures import schema_problem
from starpo.gates.rules import check_table
from starpo.store import checksums
from starpo.store.durable import replacing
from starpo.store.policies import Policy
from starpo.store.policy_state import MANIFEST, PolicyState
from starpo.store.reading import read_object, read_table
from starpo.store.rejected import keep_rejected, rejected_path, rejection
from starpo.store.schemas import TABLES, schema_of


def _peeked(batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, Iterable[pa.RecordBatch]]:
    """The first of a stream, None of an empty one, and the whole stream."""
    stream = iter(batches)
    first = next(stream, None)
    return first, stream if first is None else chain([first], stream)


class TableDataset(AbstractDataset[Any, pa.Table]):
    """A Parquet table with a fixed schema. Rows that break a rule never reach the final path.

    ``save`` takes a table or an iterable of record batches (large iterations stream). The file is written
    under a temporary name, checked and renamed; a rejected one is kept in ``rejected/`` beside it.
    """

    def __init__(self, *, filepath: str, table: str, metadata: dict[str, Any] | None = None) -> None:
        if table not in TABLES:
            raise UserError(f"catalog: table = {table!r} is unknown; known: {', '.join(TABLES)}")
        self._path = Path(filepath)
        self._table = table
        self.metadata = metadata

    def load(self) -> pa.Table:
        return read_table(self._path, self._table)

    def save(self, data: pa.Table | Iterable[pa.RecordBatch]) -> None:
        if isinstance(data, pa.Table) and (problem := schema_problem(data.schema, self._table)):
            keep_rejected(self._path, data)
            raise rejection(self._path, problem)
        if isinstance(data, pa.Table):
            # Its metadata names trajectories without a row.
            schema = schema_of(self._table, data.schema.names).with_metadata(data.schema.metadata)
            batches: Iterable[pa.RecordBatch] = data.to_batches()
        else:
            first, batches = _peeked(data)
            schema = schema_of(self._table, () if first is None else first.schema.names)
        with replacing(self._path) as temporary:
            with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
            if breach := check_table(pq.read_table(temporary), self._table):
                rejected = rejected_path(self._path)
                rejected.parent.mkdir(exist_ok=True)
                os.replace(temporary, rejected)
                raise rejection(self._path, str(breach), breach.rule.remedy)
            checksums.record(self._path, temporary)

    def _exists(self) -> bool:
        return self._path.exists() or checksums.is_lost(self._path)

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._path), "table": self._table}


class JSONFileDataset(AbstractDataset[dict[str, Any], dict[str, Any]]):
    """A JSON object, written atomically."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        self._path = Path(filepath)
        self.metadata = metadata

    def load(self) -> dict[str, Any]:
        return read_object(self._path)

    def save(self, data: dict[str, Any]) -> None:
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(data, indent=1, sort_keys=True))
            checksums.record(self._path, temporary)

    def _exists(self) -> bool:
        return self._path.exists() or checksums.is_lost(self._path)

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._path)}


class PolicyDataset(AbstractDataset[PolicyState, Policy]):
    """A policy folder. It exists as long as its manifest does, also after its weights were pruned."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        self._path = Path(filepath)
        self.metadata = metadata

    def load(self) -> Policy:
        return Policy.open(self._path)

    def save(self, data: PolicyState) -> None:
        with replacing(self._path, data.size) as temporary:
            data.write(temporary)
            checksums.record(self._path / MANIFEST, temporary / MANIFEST)

    def _exists(self) -> bool:
        manifest = self._path / MANIFEST
        return manifest.exists() or checksums.is_lost(manifest)

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._path)}


class _Shared(AbstractDataset[None, Any]):
    """A read-only object that lives as long as the run: built at first load, closed by ``release``."""

    _EPHEMERAL = True
    _SINGLE_PROCESS = True

    def __init__(self, metadata: dict[str, Any] | None = None) -> None:
        self._host: Any = None
        self.metadata = metadata

    def load(self) -> Any:
        if self._host is None:
            self._host = self._make()
        return self._host

    def save(self, data: None) -> None:
        raise UserError(f"{type(self).__name__} is read-only")

    def _make(self) -> Any:
        raise NotImplementedError

    def _exists(self) -> bool:
        return True

    def _release(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None

    def _describe(self) -> dict[str, Any]:
        return {}


class EngineDataset(_Shared):
    """The generation engine."""

    def _make(self) -> Any:
        from starpo.rollout.host import EngineHost  # noqa: PLC0415

        return EngineHost()


class LearnerDataset(_Shared):
    """The DeepSpeed learner."""

    def _make(self) -> Any:
        from starpo.learning.host import LearnerHost  # noqa: PLC0415

        return LearnerHost()

"""A table or object that failed a gate: kept as evidence, with an error that says what, where and what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.errors import UserError


def rejected_path(path: Path) -> Path:
    """Where the rejected version of ``path`` is kept."""
    return path.parent / "rejected" / path.name


def keep_rejected(path: Path, data: pa.Table | Mapping[str, Any]) -> Path:
    """Write ``data``, which must not become ``path``, into ``rejected/`` beside it; returns where it is.

    An earlier rejected version of the same file is replaced; nothing else is touched.
    """
    target = rejected_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if isinstance(data, pa.Table):
            pq.write_table(data, temporary, compression="zstd")
        else:
            temporary.write_text(json.dumps(dict(data), indent=1, sort_keys=True))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def rejection(path: Path, problem: str, remedy: str = "") -> UserError:
    """The error for a rejected file: the problem, the evidence, and that the same command goes on afterwards."""
    advice = f"{remedy} Then the" if remedy else "Find the cause in the kept file; once it is mended, the"
    return UserError(
        f"{path}: {problem}.\nThe rejected data is kept in {rejected_path(path)}; nothing was overwritten.\n"
        f"{advice} same command goes on from here."
    )

"""Failure labels to their Parquet table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from starpo.store.schemas import LABELS, SCHEMA_VERSION


def labels_to_table(labels: Iterable[Mapping[str, Any]], suite: Mapping[str, Any]) -> pa.Table:
    """One row per labelled trajectory.

    Args:
        labels: group, member, label, turn and chance of each.
        suite: what all of them share: iteration, policy_step, environment, split and stream.
    """
    names = ("iteration", "policy_step", "environment", "split", "stream")
    shared = {name: suite[name] for name in names} | {"schema_version": SCHEMA_VERSION}
    return pa.Table.from_pylist([{**shared, **row} for row in labels], schema=LABELS)

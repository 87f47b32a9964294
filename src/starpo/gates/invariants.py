"""What must hold of every table as a whole, checked vectorised on every save; the first breach in words.

These are faults of the code that wrote the table: they stop the run. A fault of single rows quarantines their
trajectories (:mod:`starpo.gates.quarantine`), but in an evaluation, where no row can be given up: its prompts are
compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.config.gates import QuarantineConfig
from starpo.gates.quarantine import FAULTS, describe, turn_faults
from starpo.store.schemas import schema_of

_TURN_KEY = ("iteration", "stream", "group", "member", "turn")
_TRAJECTORY_KEY = ("iteration", "stream", "group", "member")


def check_schema(schema: pa.Schema, kind: str) -> str | None:
    """How ``schema`` differs from that of the table kind (a missing, odd or mistyped column), or None."""
    expected = schema_of(kind, schema.names)
    for name in expected.names:
        if name not in schema.names:
            return f"the column {name!r} is missing"
        if schema.field(name).type != expected.field(name).type:
            return (
                f"the column {name!r} holds {schema.field(name).type}, expected {expected.field(name).type}"
            )
    odd = [name for name in schema.names if name not in expected.names]
    if odd:
        return f"the column {odd[0]!r} does not belong to a table of {kind}"
    if schema.names != expected.names:
        return f"the columns are not in their order: {', '.join(expected.names)}"
    return None


def check_table(table: pa.Table, kind: str) -> str | None:
    """The first broken invariant of the table kind, naming rows, or None."""
    if problem := check_schema(table.schema, kind):
        return problem
    if not table.num_rows or kind not in _CHECKS:
        return None
    return _check_keys(table) or _CHECKS[kind](table)


def check_metrics(metrics: Mapping[str, Any]) -> str | None:
    """Metrics that are not finite, by name, or None."""
    bad = {
        key: value for key, value in metrics.items() if isinstance(value, float) and not np.isfinite(value)
    }
    if bad:
        return "not finite: " + ", ".join(f"{key} = {value}" for key, value in sorted(bad.items()))
    return None


def _check_keys(table: pa.Table) -> str | None:
    for column in ("iteration", "policy_step", "group", "member"):
        if table[column].null_count:
            return f"{column} is null in {table[column].null_count} rows"
    for column in ("iteration", "policy_step", "stream", "split"):
        values = pc.unique(table[column]).to_pylist()
        if len(values) > 1:
            return f"{column} holds {values[0]!r} and {values[1]!r}; a table is of one policy and one stream"
    return None


def _duplicates(table: pa.Table, key: tuple[str, ...]) -> str | None:
    counts = table.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1))
    if repeated.num_rows:
        return (
            f"the key {', '.join(key)} is not unique, first repeated: {repeated.slice(0, 1).to_pylist()[0]}"
        )
    return None


def _first(bad: np.ndarray) -> str:
    return f"{int(bad.sum())} rows, first row {int(np.flatnonzero(bad)[0])}"


def _check_turns(table: pa.Table) -> str | None:
    if problem := _duplicates(table, _TURN_KEY):
        return problem
    group, member, turn = (table[name].to_numpy() for name in ("group", "member", "turn"))
    goes_on = np.r_[False, (np.diff(group) == 0) & (np.diff(member) == 0)]
    expected = np.where(goes_on, np.r_[0, turn[:-1] + 1], 0)
    if (turn != expected).any():
        return f"turns of a trajectory are not 0, 1, 2, … in this order ({_first(turn != expected)})"
    if "chain_start" in table.column_names:
        if nulls := table["chain_start"].null_count:
            return f"chain_start is null in {nulls} rows"
        early = table["chain_start"].to_numpy() & (turn == 0)
        if early.any():
            return f"chain_start is true in a first turn, before which there is no chain ({_first(early)})"
    if table["split"][0].as_py() != "train" and (faults := turn_faults(table, QuarantineConfig())):
        total = int((~goes_on).sum())
        meaning = FAULTS[next(iter(faults.values()))]
        return f"{meaning}: {describe(faults, total)}; in an evaluation no row can be given up"
    return None


def _check_scored(table: pa.Table) -> str | None:
    returns = table["return"].to_numpy()
    if not np.isfinite(returns).all():
        return f"returns are not finite ({_first(~np.isfinite(returns))})"
    both = pc.and_(table["kept"], table["quarantined"]).to_numpy(zero_copy_only=False)
    if both.any():
        return f"trajectories are kept and quarantined at once ({_first(both)})"
    return _duplicates(table, _TRAJECTORY_KEY)


def _check_updates(table: pa.Table) -> str | None:
    for column in ("advantages", "values", "learner_logprobs", "ratios"):
        values = pc.list_flatten(table[column]).to_numpy()
        if not np.isfinite(values).all():
            return f"{int((~np.isfinite(values)).sum())} entries of {column} are not finite"
    return _duplicates(table, _TURN_KEY)


def _check_labels(table: pa.Table) -> str | None:
    return _duplicates(table, _TRAJECTORY_KEY)


_CHECKS: dict[str, Callable[[pa.Table], str | None]] = {
    "turns": _check_turns,
    "scored": _check_scored,
    "updates": _check_updates,
    "labels": _check_labels,
}

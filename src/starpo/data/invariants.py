"""What must hold of every table, checked vectorised on every save; returns the first breach in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: float32 log-softmax may exceed 0 by rounding only.
LOGPROB_TOLERANCE = 1e-4

_TURN_KEY = ("iteration", "stream", "group", "member", "turn")
_TRAJECTORY_KEY = ("iteration", "stream", "group", "member")


def check_table(table: pa.Table, name: str) -> str | None:
    """The first broken invariant of the table kind ``name``, naming rows, or None."""
    return _CHECKS[name](table) if table.num_rows else None


def _duplicates(table: pa.Table, key: tuple[str, ...]) -> str | None:
    counts = table.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1))
    if repeated.num_rows:
        return (
            f"the key {', '.join(key)} is not unique, first repeated: {repeated.slice(0, 1).to_pylist()[0]}"
        )
    return None


def _lengths(table: pa.Table, column: str) -> np.ndarray:
    return pc.list_value_length(table[column]).to_numpy()


def _flat(table: pa.Table, column: str) -> np.ndarray:
    return pc.list_flatten(table[column]).to_numpy()


def _first(bad: np.ndarray) -> str:
    return f"{int(bad.sum())} rows, first row {int(np.flatnonzero(bad)[0])}"


def _check_turns(table: pa.Table) -> str | None:
    sampled, logprobs = _lengths(table, "response_ids"), _lengths(table, "response_logprobs")
    if (sampled != logprobs).any():
        return f"response_ids and response_logprobs differ in length ({_first(sampled != logprobs)})"
    if (sampled == 0).any():
        return f"turns without a sampled token ({_first(sampled == 0)})"
    if (_lengths(table, "context_ids") == 0).any():
        return f"turns without context ({_first(_lengths(table, 'context_ids') == 0)})"
    values = _flat(table, "response_logprobs")
    owners = np.repeat(np.arange(table.num_rows), sampled)
    bad = ~np.isfinite(values) | (values > LOGPROB_TOLERANCE)
    if bad.any():
        return (
            f"{int(bad.sum())} log-probs are not finite or above 0, first in row {int(owners[bad][0])}: "
            f"{values[bad][0]}"
        )
    rewards = table["reward"].to_numpy()
    if not np.isfinite(rewards).all():
        return f"rewards are not finite ({_first(~np.isfinite(rewards))})"
    return _duplicates(table, _TURN_KEY)


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
        values = _flat(table, column)
        if not np.isfinite(values).all():
            return f"{int((~np.isfinite(values)).sum())} entries of {column} are not finite"
    return _duplicates(table, _TURN_KEY)


_CHECKS: dict[str, Callable[[pa.Table], str | None]] = {
    "turns": _check_turns,
    "scored": _check_scored,
    "updates": _check_updates,
}

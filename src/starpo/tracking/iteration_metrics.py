"""What one iteration's rollouts say, as numbers for the metrics file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.tracking.thoughts import thought_metrics


def rollout_metrics(turns: pa.Table, scored: pa.Table) -> dict[str, float]:
    """Means over all trajectories of the iteration, before the filter, and the filter's counts."""
    usable = scored.filter(pc.invert(scored["quarantined"]))
    metrics = {
        "trajectories": float(scored.num_rows),
        "quarantined": float(scored.num_rows - usable.num_rows),
        "rollout_tokens": float(pc.sum(scored["response_tokens"]).as_py() or 0),
        "format_valid_rate": _mean(turns["format_valid"]),
        "groups": float(len(usable["group"].unique())),
        "groups_kept": float(len(usable.filter(usable["kept"])["group"].unique())),
    }
    for name, column in (
        ("success", "success"),
        ("return", "return"),
        ("return_std", "group_std"),
        ("turns_mean", "turns"),
        ("actions_mean", "actions"),
        ("response_tokens_mean", "response_tokens"),
    ):
        metrics[name] = _mean(usable[column])
    lengths = pc.list_value_length(turns["response_ids"])
    metrics["turn_tokens_mean"] = _mean(lengths)
    metrics["zero_spread_groups"] = float(
        len(usable.filter(pc.equal(usable["group_std"], 0))["group"].unique())
    )
    return metrics | thought_metrics(turns["thought"].to_pylist())


def _mean(column: pa.ChunkedArray) -> float:
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    return float(values.mean()) if len(values) else 0.0

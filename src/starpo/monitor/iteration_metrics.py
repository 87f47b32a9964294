"""What one iteration's rollouts say, as numbers for the metrics file."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.evaluation.intervals import cluster_variance
from starpo.evaluation.scores import raw_scores
from starpo.evaluation.thoughts import thought_metrics
from starpo.store.trajectory_table import without_turns


def rollout_metrics(turns: pa.Table, scored: pa.Table) -> dict[str, float]:
    """Means over all trajectories of the iteration, before the filter, and the filter's counts."""
    usable = scored.filter(pc.invert(scored["quarantined"]))
    unstarted = [each["trajectory_stop"] for each in without_turns(turns)]
    ended = pc.sum(pc.equal(_plain(scored["trajectory_stop"]), "environment_error")).as_py() or 0
    metrics = {
        "trajectories": float(scored.num_rows),
        "quarantined": float(scored.num_rows - usable.num_rows),
        "environment_errors": float(ended + unstarted.count("environment_error")),
        "trajectories_without_turns": float(len(unstarted)),
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
    formatted = pc.equal(usable["format_valid_share"], 1.0)
    metrics["success_format_valid"] = _mean(pc.and_(usable["success"], formatted))
    if usable.num_rows:
        metrics["success_error"] = _error(usable["success"], usable["group"])
    scores = raw_scores(turns)
    keys = zip(usable["group"].to_pylist(), usable["member"].to_pylist(), strict=True)
    if told := [scores[key] for key in keys if key in scores]:
        metrics["score"] = float(np.mean(told))
    lengths = pc.list_value_length(turns["response_ids"])
    metrics["turn_tokens_mean"] = _mean(lengths)
    metrics["zero_spread_groups"] = float(
        len(usable.filter(pc.equal(usable["group_std"], 0))["group"].unique())
    )
    return metrics | _per_term(usable) | _per_environment(usable) | thought_metrics(turns)


def _per_term(usable: pa.Table) -> dict[str, float]:
    """Mean sum of each reward term, and how many turns it could not judge, where the table tells them apart."""
    if "turn_terms" not in usable.column_names:
        return {}
    sums = [json.loads(each) for each in usable["terms"].to_pylist()]
    missing = [json.loads(each) for each in usable["missing"].to_pylist()]
    metrics: dict[str, float] = {}
    for name in sums[0] if sums else ():
        metrics[f"term/{name}"] = float(np.mean([each[name] for each in sums]))
        metrics[f"term_missing/{name}"] = float(sum(len(each.get(name, ())) for each in missing))
    return metrics


def _per_environment(usable: pa.Table) -> dict[str, float]:
    """Success, return and kept groups of each environment, where there are several."""
    names = sorted(_plain(usable["environment"]).unique().to_pylist())
    metrics: dict[str, float] = {}
    for name in names if len(names) > 1 else ():
        own = usable.filter(pc.equal(_plain(usable["environment"]), name))
        metrics[f"success/{name}"] = _mean(own["success"])
        metrics[f"return/{name}"] = _mean(own["return"])
        metrics[f"groups/{name}"] = float(len(own["group"].unique()))
        metrics[f"groups_kept/{name}"] = float(len(own.filter(own["kept"])["group"].unique()))
    return metrics


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _error(column: pa.ChunkedArray, groups: pa.ChunkedArray) -> float:
    """Standard error of the mean, clustered by group; of a single group that of independent trajectories."""
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    variance = cluster_variance(values - values.mean(), groups.to_numpy())
    return float(np.sqrt(variance if np.isfinite(variance) else values.var() / len(values)))


def _mean(column: pa.ChunkedArray) -> float:
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    return float(values.mean()) if len(values) else 0.0

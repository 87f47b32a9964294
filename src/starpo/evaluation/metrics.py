"""One suite of one policy as a flat dictionary of numbers; the keys are explained in ``METRICS``."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from starpo.agent.records import StopReason
from starpo.errors import UserError
from starpo.evaluation.glossary import METRICS
from starpo.evaluation.intervals import Interval, mean_interval, pass_at_k, proportion_interval
from starpo.evaluation.scores import raw_scores
from starpo.evaluation.thoughts import thought_metrics
from starpo.evaluation.trajectories import Trajectories, read_trajectories

__all__ = ["METRICS", "PAPER_PROMPTS", "summarise", "with_bounds"]

PAPER_PROMPTS = 256
"""Prompts of the paper's validation sets: the head of every larger suite."""

_SAME_RETURN = 1e-6
"""Returns closer than this are equal: they are sums of float32 rewards."""


def summarise(turns: pa.Table) -> dict[str, float | int]:
    """All metrics of one suite, JSON-able.

    A prompt that left no room for a response has no row and is not counted. It depends on the prompt alone,
    so all policies of a suite miss the same ones.

    Args:
        turns: a table with the columns of ``TURNS``, one suite and one policy.

    Returns:
        The keys of ``METRICS``; undefined values are left out, so that JSON never holds NaN.

    Raises:
        UserError: the table is empty, or mixes suites or policies.
    """
    t = read_trajectories(turns)
    head = t.group < PAPER_PROMPTS
    formatted = pc.fill_null(t.turns["format_valid"], False).to_numpy()
    invalid = t.total(~formatted)
    values: dict[str, float | int] = {
        "prompts": len(np.unique(t.group)),
        "trajectories": len(t),
        **with_bounds("success", proportion_interval(t.success, t.group)),
        **with_bounds("success_format_valid", proportion_interval(t.success & (invalid == 0), t.group)),
        **_head_success(t, head),
        **_pass_at_ks(t),
        **with_bounds("return", mean_interval(t.returns, t.group)),
        **_raw_score(t),
        **_group_spread(t),
        **_actions(t),
        **_tokens(t),
        **thought_metrics(t.turns),
        "format_valid": float(formatted.mean()),
        "cut_off": _share(t.column("stop_reason"), StopReason.LENGTH),
    }
    stops = np.asarray(t.first("trajectory_stop"), dtype=object)
    for reason in StopReason:
        if f"stop_{reason.value}" in METRICS:
            values[f"stop_{reason.value}"] = _share(stops, reason)
    return values


def with_bounds(name: str, interval: Interval, suffix: str = "") -> dict[str, float]:
    """``name``, ``name_low`` and ``name_high``; infinite bounds are left out."""
    named = {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {key + suffix: value for key, value in named.items() if math.isfinite(value)}


def _head_success(t: Trajectories, head: NDArray[np.bool_]) -> dict[str, float]:
    if not head.any():
        raise UserError(
            f"the table of turns holds no prompt below {PAPER_PROMPTS}; success_256 is of the suite's first "
            f"{PAPER_PROMPTS} prompts. Evaluate the suite from prompt 0."
        )
    return with_bounds("success_256", proportion_interval(t.success[head], t.group[head]))


def _pass_at_ks(t: Trajectories) -> dict[str, float]:
    samples = int(np.unique(t.group, return_counts=True)[1].min())
    values: dict[str, float] = {}
    for k in (2**power for power in range(1, samples.bit_length())):
        values |= with_bounds(f"pass_at_{k}", pass_at_k(t.success, t.group, k))
    return values


def _raw_score(t: Trajectories) -> dict[str, float]:
    scores = raw_scores(t.turns)
    if not scores:
        return {}
    groups = np.array([group for group, _ in scores])
    return with_bounds("score", mean_interval(np.array(list(scores.values())), groups))


def _group_spread(t: Trajectories) -> dict[str, float]:
    _, index, sizes = np.unique(t.group, return_inverse=True, return_counts=True)
    several = sizes >= 2
    if not several.any():
        return {}
    means = np.bincount(index, weights=t.returns) / sizes
    squares = np.bincount(index, weights=(t.returns - means[index]) ** 2)
    variance = squares[several] / (sizes[several] - 1)
    highest, lowest = np.full(len(sizes), -np.inf), np.full(len(sizes), np.inf)
    np.maximum.at(highest, index, t.returns)
    np.minimum.at(lowest, index, t.returns)
    return {
        "group_return_variance": float(variance.mean()),
        "group_return_std": float(np.sqrt(variance).mean()),
        "group_zero_spread": float((highest - lowest < _SAME_RETURN)[several].mean()),
    }


def _actions(t: Trajectories) -> dict[str, float]:
    per_turn = t.lengths("executed")
    per_trajectory = t.total(per_turn)
    values = {
        "turns": t.turns.num_rows / len(t),
        "actions": float(per_trajectory.mean()),
        "actions_per_turn": float(per_turn.mean()),
    }
    total = int(per_turn.sum())
    if not total:
        return values
    names, code = np.unique(pc.list_flatten(t.turns["executed"]).to_numpy().astype(str), return_inverse=True)
    frequency = np.bincount(code) / total
    owner = np.repeat(np.arange(len(t)), per_trajectory.astype(np.int64))
    used = np.unique(owner * len(names) + code) // len(names)
    distinct = np.bincount(used, minlength=len(t))
    acting = per_trajectory > 0
    return values | {
        "distinct_actions": float((distinct[acting] / per_trajectory[acting]).mean()),
        "action_entropy": float(-(frequency * np.log(frequency)).sum()) + 0.0,
        "effective": float(pc.fill_null(t.turns["effective"], 0).to_numpy().sum() / total),
    }


def _tokens(t: Trajectories) -> dict[str, float | int]:
    sampled = t.lengths("response_ids")
    values: dict[str, float | int] = {
        "response_length": float(sampled.mean()),
        "response_tokens": int(sampled.sum()),
        "tokens": int(sampled.sum() + t.lengths("context_ids").sum()),
    }
    logprobs = pc.list_flatten(t.turns["response_logprobs"]).to_numpy().astype(np.float64)
    if len(logprobs):
        bad = np.flatnonzero(~np.isfinite(logprobs))
        if len(bad):
            raise UserError(
                f"{len(bad)} of {len(logprobs)} response_logprobs are not finite "
                f"(first: {logprobs[bad[0]]}); a sampled token has a probability above 0. "
                "Check the engine's sampling options."
            )
        values["token_nll"] = float(-logprobs.mean()) + 0.0
    return values


def _share(values: NDArray[np.object_], reason: StopReason) -> float:
    return float(np.mean([value == reason.value for value in values]))

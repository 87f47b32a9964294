"""Curves over iterations: a mean with a band for each family of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starpo.evaluation.intervals import mean_interval
from starpo.monitor.glossary import ROLLOUT, UPDATE
from starpo.reporting.families import Family
from starpo.reporting.numbers import finite, short

FEWEST_SEEDS = 3
"""Seeds from which on a band is a 95 % t-interval; with two, whose interval is 12.7 standard errors wide, it is
their range."""

_SHARE, _SIZE, _ANY = (0.0, 1.0), (0.0, math.inf), (-math.inf, math.inf)

CHARTS: dict[str, tuple[str, tuple[float, float]]] = {
    "success": ("Success while training", _SHARE),
    "return": ("Return", _ANY),
    "return_std": ("Spread of returns in a group", _SIZE),
    "entropy": ("Entropy", _SIZE),
    "gradient_norm": ("Gradient norm", _SIZE),
    "approx_kl": ("KL of an update", _SIZE),
    "response_tokens_mean": ("Sampled tokens per trajectory", _SIZE),
    "thought_words_mean": ("Words per thought", _SIZE),
    "thought_variety": ("Variety of thoughts", _SHARE),
    "thought_template_similarity": ("Likeness of thoughts but for names and numbers", _SHARE),
    "thought_repetition": ("Repetition within a thought", _SHARE),
    "thought_prompt_information": ("Nats that a thought tells about its prompt", _SIZE),
    "thought_prompt_recognised_share": ("Prompts recognised from a thought", _SHARE),
    "format_valid_rate": ("Valid format", _SHARE),
    "explained_variance": ("Explained variance of the critic", (-math.inf, 1.0)),
    "groups_kept": ("Groups kept", _SIZE),
}
"""Metric of an iteration -> title and range of its values, in the order of the page."""

Points = Mapping[int, float]


def band(seeds: Sequence[Points], limits: tuple[float, float] = _ANY) -> dict[str, list[Any]]:
    """Mean and band over seeds, at every x that a seed has.

    Args:
        seeds: per seed, value by iteration; values that are not finite count as missing.
        limits: of the metric, beyond which a band does not go.

    Returns:
        ``x``, ``mid``, ``low``, ``high`` (None where there is one seed only) and ``n``, the seeds behind each.

    Example: ``band([{0: 1.0}, {0: 3.0}])`` has mid 2, low 1, high 3.
    """
    result: dict[str, list[Any]] = {"x": [], "mid": [], "low": [], "high": [], "n": []}
    for x in sorted({x for seed in seeds for x in seed}):
        values = [seed[x] for seed in seeds if x in seed and math.isfinite(seed[x])]
        if not values:
            continue
        low: float | None = None
        high: float | None = None
        if len(values) >= FEWEST_SEEDS:
            middle, low, high = mean_interval(values, range(len(values)))
            low, high = max(low, limits[0]), min(high, limits[1])
        else:
            middle = math.fsum(values) / len(values)
            if len(values) > 1:
                low, high = min(values), max(values)
        for key, value in (("x", x), ("n", len(values))):
            result[key].append(value)
        for key, number in (("mid", middle), ("low", low), ("high", high)):
            result[key].append(None if number is None else short(number))
    return result


def training_charts(
    families: Sequence[Family], metrics: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """One chart per metric that a run has; ``metrics`` holds each run's iterations by the run's name."""
    meanings = ROLLOUT | UPDATE
    charts = []
    for metric, (title, limits) in CHARTS.items():
        points = {
            name: {int(row["iteration"]): float(row[metric]) for row in rows if finite(row.get(metric))}
            for name, rows in metrics.items()
        }
        if chart := _chart(title, meanings[metric], "iteration", families, points, limits):
            charts.append(chart | {"metric": metric})
    return charts


def evaluation_charts(
    families: Sequence[Family], summaries: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Success over policy steps, one chart per suite that was played at three or more of them."""
    suites = sorted({str(row["suite"]) for rows in summaries.values() for row in rows})
    charts = []
    for suite in suites:
        points = {
            name: {int(row["step"]): float(row["success"]) for row in rows if row["suite"] == suite}
            for name, rows in summaries.items()
        }
        if max((len(each) for each in points.values()), default=0) < 3:
            continue
        meaning = (
            "Share of held-out prompts that the policy solves after so many iterations, the same for all."
        )
        if chart := _chart(
            f"Success on {suite}", meaning, "iterations behind the policy", families, points, _SHARE
        ):
            charts.append(chart | {"metric": f"evaluation/{suite}"})
    return charts


def _chart(
    title: str,
    meaning: str,
    axis: str,
    families: Sequence[Family],
    points: Mapping[str, Points],
    limits: tuple[float, float],
) -> dict[str, Any] | None:
    lines = []
    for number, family in enumerate(families):
        seeds = {run.name: points.get(run.name, {}) for run in family.runs}
        if drawn := {name: seed for name, seed in seeds.items() if seed}:
            runs = [
                {"run": name, "x": sorted(seed), "y": [short(seed[x]) for x in sorted(seed)]}
                for name, seed in drawn.items()
            ]
            lines.append({"family": number, "band": band(list(drawn.values()), limits), "runs": runs})
    return {"title": title, "meaning": meaning, "axis": axis, "lines": lines} if lines else None

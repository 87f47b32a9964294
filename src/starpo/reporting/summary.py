"""The tables of the page: results, other suites, collapse, cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starpo.config.monitor import MonitorConfig
from starpo.evaluation.intervals import mean_interval
from starpo.monitor.echo_trap import RUN, MonitorState, describe, lead_times, watch
from starpo.reporting.curves import FEWEST_SEEDS
from starpo.reporting.families import Family, seed_of
from starpo.reporting.numbers import finite, plain_rows, short
from starpo.store.layout import Layer, RunPaths, layer_folder
from starpo.store.reading import read_object
from starpo.store.run_tables import Run

_PHASES = ("rollout", "reward", "filter", "update", "sync")


def final_rows(families: Sequence[Family]) -> list[dict[str, Any]]:
    """First against last policy: a row per run, suite and temperature, and the means over a family's seeds.

    Differences of a run are paired by prompt, with the interval over prompts; those of a family are means over
    seeds, with a t-interval from three seeds on. A run that has not ended has no row.
    """
    rows: list[dict[str, Any]] = []
    for number, family in enumerate(families):
        own: list[dict[str, Any]] = [
            {"family": number, "run": run.name, "seed": seed_of(run), **row}
            for run in family.runs
            for row in _comparisons(run)
        ]
        rows += own
        played: dict[tuple[str, float], list[dict[str, Any]]] = {}
        for row in own:
            played.setdefault((str(row["suite"]), float(row["temperature"])), []).append(row)
        rows += [_over_seeds(number, *key, alike) for key, alike in played.items() if len(alike) > 1]
    return rows


def _comparisons(run: Run) -> list[dict[str, Any]]:
    return plain_rows(run.comparison()) if run.paths.comparisons() else []


def _over_seeds(family: int, suite: str, temperature: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mean: dict[str, Any] = {"family": family, "run": None, "seeds": len(rows), "suite": suite}
    mean |= {"temperature": temperature, "prompts": rows[0]["prompts"]}
    for name in ("success_before", "success_after", "success_difference"):
        mean |= mean_of(name, [float(row[name]) for row in rows])
    return mean


def mean_of(name: str, values: list[float]) -> dict[str, Any]:
    """Mean over seeds, with bounds where there are enough; a base policy that all seeds share has none."""
    middle, low, high = mean_interval(values, range(len(values)))
    if len(values) < FEWEST_SEEDS or len(set(values)) == 1:
        return {name: short(middle)}
    # Student's t knows no limits, a share does.
    least = -1.0 if name.endswith("difference") else 0.0
    return {name: short(middle), f"{name}_low": short(max(low, least)), f"{name}_high": short(min(high, 1.0))}


def family_differences(families: Sequence[Family], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Last policies of two families of one environment, paired by seed: later one minus the first one."""
    after = {
        (row["family"], row["seed"], row["suite"], row["temperature"]): float(row["success_after"])
        for row in rows
        if row["run"] is not None
    }
    found = []
    for one in range(len(families)):
        for other in range(one + 1, len(families)):
            if families[one].environment != families[other].environment:
                continue
            pairs: dict[tuple[str, float], list[float]] = {}
            for (family, seed, suite, temperature), value in after.items():
                partner = after.get((other, seed, suite, temperature)) if family == one else None
                if partner is not None:
                    pairs.setdefault((suite, temperature), []).append(partner - value)
            for (suite, temperature), values in pairs.items():
                about = {"of": other, "minus": one, "suite": suite, "temperature": temperature}
                found.append(about | {"seeds": len(values)} | mean_of("difference", values))
    return found


def suite_rows(root: Path, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What ``kedro run --pipeline=evaluate`` found about policies of these runs: a row per suite and temperature."""
    names = {run.name for run in runs}
    rows = []
    for folder in sorted(layer_folder(root, Layer.REPORTING).glob("*/")):
        path = RunPaths(root, folder.name).overview
        if not path.exists():
            continue
        overview = read_object(path)
        policy = str(overview.get("policy", ""))
        if policy.partition("@")[0] in names:
            rows += [{"policy": policy} | _numbers(summary) for summary in overview["evaluations"]]
    return rows


def _numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in summary.items() if isinstance(value, str)}
    return kept | {key: short(value) for key, value in summary.items() if finite(value)}


def collapse(run: Run, metrics: list[dict[str, Any]], config: MonitorConfig) -> dict[str, Any]:
    """The Echo Trap monitor replayed over a run: stages of every indicator, onsets, lead times."""
    state = watch(metrics, config)
    first, last = (int(metrics[end]["iteration"]) for end in (0, -1))
    return {
        "run": run.name,
        "first": first,
        "last": last,
        "verdict": state.verdict.stage,
        "alarm": next(
            (event.iteration for event in state.events if event.indicator == RUN and event.after == "alarm"),
            None,
        ),
        "spans": {name: _spans(state, name, first, last) for name in (RUN, *sorted(state.records))},
        "lead_times": lead_times(state),
        "events": [describe(event) for event in state.events],
    }


def _spans(state: MonitorState, indicator: str, first: int, last: int) -> list[list[Any]]:
    """``[from, to, stage]``, both iterations included."""
    spans: list[list[Any]] = [[first, last, "quiet"]]
    for event in state.events:
        if event.indicator == indicator:
            spans[-1][1] = event.iteration - 1
            spans.append([event.iteration, last, event.after])
    return [span for span in spans if span[0] <= span[1]]


def cost(run: Run, metrics: list[dict[str, Any]], summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds by phase and tokens of a run; an iteration that was repeated after an interruption counts again."""
    timings = _timings(run)
    totals = {phase: sum(float(row.get(f"seconds_{phase}", 0.0)) for row in timings) for phase in _PHASES}
    whole = sum(float(row.get("seconds_iteration", 0.0)) for row in timings)
    sampled = sum(float(row.get("rollout_tokens", 0.0)) for row in metrics)
    rate = sampled / totals["rollout"] if totals["rollout"] > 0 else None
    return {
        "run": run.name,
        "iterations": len(metrics),
        "seconds": {phase: short(value) for phase, value in totals.items()}
        | {"other": short(max(0.0, whole - sum(totals.values())))},
        "seconds_total": short(whole),
        "sampled_tokens": int(sampled),
        "trained_tokens": int(sum(float(row.get("trained_tokens", 0.0)) for row in metrics)),
        "evaluation_tokens": int(sum(float(row.get("response_tokens", 0.0)) for row in summaries)),
        "tokens_per_second": None if rate is None else short(rate),
    }


def _timings(run: Run) -> list[dict[str, Any]]:
    path = run.paths.timings
    if not path.exists():
        return []
    # The last line may be half-written while the run goes on.
    lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
    return [json.loads(line) for line in lines]

"""What a run has stored, written into its copy in MLflow: one thing at a time as it comes, or all of it afterwards.

The hook of a live run and ``starpo runs mirror`` both write through here, so the two copies are equal. Everything may
be written again and changes nothing then.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starpo.errors import UserError
from starpo.mirror.mirror import MlflowMirror
from starpo.store.layout import Played, RunPaths
from starpo.store.runs import RunRecord

COMPLETE = {"finished", "stopped"}
"""States of a run whose data will not change."""


def log_evaluation(mirror: MlflowMirror, paths: RunPaths, played: Played, step: int) -> None:
    """A suite's numbers, table and traces."""
    table = paths.evaluation(played, step)
    mirror.log_evaluation(played.folder, step, _json(table.with_suffix(".json")), table)
    mirror.log_traces(played.folder, step, table, _turn_seconds(paths.turn_seconds(played, step)))


def log_comparison(mirror: MlflowMirror, paths: RunPaths, record: RunRecord, last: int) -> None:
    """The comparison of the first with the last policy, and the two as models where their weights are stored.

    The last one of a run that was not stopped becomes the candidate. Policies of other runs are theirs to log.
    """
    from starpo.store.policies import Policy  # noqa: PLC0415
    from starpo.store.policy_state import MANIFEST, MODEL  # noqa: PLC0415

    file = paths.comparisons()[last]
    compared = _json(file)
    mirror.log_comparison(compared["comparisons"], last, file)
    if "between" in compared:
        return
    for iteration in (0, last):
        folder = paths.policy(iteration)
        if not (folder / MANIFEST).exists():
            continue
        policy = Policy.open(folder)
        if not any(
            (place / MODEL).exists() for place in (folder, folder.parent / policy.manifest["weights_in"])
        ):
            continue
        mirror.log_policy(policy.model_directory, iteration, policy.harness())
        if iteration == last and policy.manifest["status"] != "stopped":
            environment = record.parameters["environment"]["name"]
            finished = file.stat().st_mtime_ns // 1_000_000
            mirror.register_candidate(environment, record.name, last, finished)


def log_ending(mirror: MlflowMirror, paths: RunPaths, *, complete: bool) -> None:
    """The Data Docs, if any were built, and of a ``complete`` run the hashes of its data."""
    if paths.data_docs.is_dir():
        mirror.log_folder(paths.data_docs, "data_docs")
    if complete:
        mirror.log_data(paths.run)


def log_stored(mirror: MlflowMirror, paths: RunPaths, record: RunRecord) -> None:
    """Iterations, evaluations, comparisons and policies that are on disk, in the order in which they came.

    Raises:
        UserError: a file cannot be read.
    """
    times = iteration_times(paths.timings)
    for iteration, file in paths.metrics().items():
        metrics = _json(file)
        own = times.get(iteration, {})
        mirror.log_iteration(metrics | own | tokens_per_second(metrics, own), iteration)
    for folder, step in sorted(
        paths.evaluations("summary").keys() & paths.evaluations("turns").keys(), key=lambda each: each[::-1]
    ):
        played = Played.parse(folder)
        if played is not None:
            log_evaluation(mirror, paths, played, step)
    for last in paths.comparisons():
        log_comparison(mirror, paths, record, last)


def iteration_times(file: Path) -> dict[int, dict[str, float]]:
    """Times of each iteration in ``timings.jsonl``, s, the last where one was computed again; empty without a file.

    Without the time of writing to MLflow, which MLflow is not told.
    """
    times = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
            times[int(row.pop("iteration"))] = {k: float(v) for k, v in row.items() if k != "seconds_mirror"}
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # a process that is killed while it writes leaves a part of a line
    return times


def tokens_per_second(metrics: dict[str, Any], times: dict[str, float]) -> dict[str, float]:
    """Sampled tokens by the second, under that name; empty where no rollout was timed."""
    if "seconds_rollout" not in times:
        return {}
    return {"tokens_per_second": metrics.get("rollout_tokens", 0.0) / max(1e-9, times["seconds_rollout"])}


def _turn_seconds(file: Path) -> dict[tuple[int, int], list[float]]:
    """Clock times of an evaluation's turns by (group, member)."""
    if not file.exists():
        return {}
    named = {key.partition("."): each for key, each in _json(file).items()}
    return {(int(group), int(member)): each for (group, _, member), each in named.items()}


def _json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: unreadable ({error}); restore the file or remove it") from None

"""Evaluated trajectories as MLflow traces: one trace per trajectory, one span per turn.

The Parquet tables stay the truth; traces are for looking. They are searchable by tags (``starpo.success``,
``starpo.environment``, ``starpo.stop`` …), and all trajectories of one evaluation form a session, so that a whole
evaluation can be read and judged in MLflow's UI.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from mlflow import MlflowClient

Key = tuple[int, int]
"""(group, member)."""

_COLUMNS = (
    "environment",
    "split",
    "group",
    "member",
    "turn",
    "policy_step",
    "instance_seed",
    "observation",
    "context_ids",
    "response",
    "response_ids",
    "response_logprobs",
    "stop_reason",
    "thought",
    "actions",
    "executed",
    "format_valid",
    "reward",
    "next_observation",
    "success",
    "trajectory_stop",
    "error",
    "info",
    "chain_start",
)


def sampled_keys(turns: pa.Table, share: float) -> list[Key]:
    """Evenly spaced trajectories of a table, at least one: the same ones for every policy on a suite.

    ``share`` in [0, 1]; 0 gives none.
    """
    keys = sorted(set(zip(turns["group"].to_pylist(), turns["member"].to_pylist(), strict=True)))
    count = min(len(keys), max(1, round(share * len(keys)))) if share > 0 else 0
    return [keys[position * len(keys) // count] for position in range(count)]


@contextlib.contextmanager
def _ids_of_their_own() -> Iterator[None]:
    """MLflow draws ids of traces from Python's global generator, which a run seeds.

    Left alone, runs of equal seeds would replace each other's traces.
    """
    state = random.getstate()
    random.seed()
    try:
        yield
    finally:
        random.setstate(state)


@_ids_of_their_own()
def log_traces(
    client: MlflowClient,
    turns: pa.Table,
    keys: Sequence[Key],
    *,
    experiment_id: str,
    run_id: str,
    session: str,
    seconds: Mapping[Key, Sequence[float]],
    ended: int,
) -> int:
    """Write one trace per trajectory in ``keys`` to MLflow's present store, if it has none; returns how many.

    Args:
        client: of the same store.
        turns: a table of one suite and one policy, as :func:`starpo.store.reading.read_table` gives it.
        keys: which trajectories.
        experiment_id: of MLflow.
        run_id: MLflow run that the traces belong to.
        session: names the evaluation.
        seconds: wall-clock time of each turn, from its request to its environment's answer; trajectories run side
            by side, so their times overlap. A trajectory that is missing here gets spans without duration.
        ended: when the evaluation ended, unix ns.

    Raises:
        RuntimeError: the store did not take all of them. MLflow itself drops such traces and says nothing.
    """
    chosen = set(keys)
    known = _traced(client, experiment_id, run_id, session)
    news = {
        name: (key, rows)
        for key, rows in _trajectories(turns)
        if key in chosen and (name := f"{rows[0]['environment']} {key[0]}.{key[1]}") not in known
    }
    for name, (key, rows) in news.items():
        metadata = {"mlflow.trace.session": session, "mlflow.sourceRun": run_id}
        _log_trace(name, rows, experiment_id, metadata, list(seconds.get(key, [])), ended)
    if news and (missing := set(news) - _traced(client, experiment_id, run_id, session)):
        raise RuntimeError(f"{len(missing)} of {len(news)} traces did not arrive")
    return len(news)


def _traced(client: MlflowClient, experiment_id: str, run_id: str, session: str) -> set[str]:
    """Names of an evaluation's traces that the store has."""
    wanted = f"metadata.`mlflow.trace.session` = '{session}' AND metadata.`mlflow.sourceRun` = '{run_id}'"
    names, token = set(), None
    while True:
        page = client.search_traces(
            locations=[experiment_id], filter_string=wanted, include_spans=False, page_token=token
        )
        names |= {trace.info.tags["mlflow.traceName"] for trace in page}
        token = page.token
        if not token:
            return names


def _log_trace(
    name: str,
    rows: list[dict[str, Any]],
    experiment_id: str,
    metadata: dict[str, str],
    durations: list[float],
    ended: int,
) -> None:
    import mlflow  # noqa: PLC0415

    last = rows[-1]
    durations += [0.0] * (len(rows) - len(durations))
    # Spans end with the evaluation and began as long before as they took.
    now = ended - int(sum(durations) * 1e9)
    root = mlflow.start_span_no_context(
        name,
        span_type="AGENT",
        inputs={"observation": rows[0]["observation"], "instance_seed": rows[0]["instance_seed"]},
        experiment_id=experiment_id,
        start_time_ns=now,
        tags=_tags(last, rows),
        metadata=metadata,
    )
    told: dict[str, Any] = {}
    for row, duration in zip(rows, durations, strict=True):
        span = mlflow.start_span_no_context(
            f"turn {row['turn']}",
            span_type="LLM",
            parent_span=root,
            inputs={"observation": row["observation"], **({"info before": told} if told else {})},
            attributes=_attributes(row, duration),
            start_time_ns=now,
        )
        now += int(duration * 1e9)
        after = own_info(row["info"])
        told = after or told  # a turn without an action changed nothing and has none
        span.end(outputs=_outputs(row) | ({"info": after} if after else {}), end_time_ns=now)
    root.end(
        outputs={
            "success": last["success"],
            "return": sum(row["reward"] for row in rows),
            "stop": last["trajectory_stop"],
            "final observation": last["next_observation"],
        },
        status="ERROR" if last["error"] else "OK",
        end_time_ns=now,
    )


def own_info(text: str) -> dict[str, Any]:
    """What an environment's info, JSON, says beside what every environment must: page and actions of WebShop, say."""
    told: dict[str, Any] = json.loads(text)
    return {key: value for key, value in told.items() if key not in {"success", "effective"}}


def _trajectories(turns: pa.Table) -> Iterator[tuple[Key, list[dict[str, Any]]]]:
    grouped: dict[Key, list[dict[str, Any]]] = {}
    for row in turns.select(list(_COLUMNS)).to_pylist():
        grouped.setdefault((row["group"], row["member"]), []).append(row)
    yield from sorted(grouped.items())


def _tags(last: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, str]:
    return {
        "starpo.success": str(last["success"]).lower(),
        "starpo.environment": last["environment"],
        "starpo.split": last["split"],
        "starpo.stop": last["trajectory_stop"],
        "starpo.policy_step": str(last["policy_step"]),
        "starpo.turns": str(len(rows)),
        "starpo.format_valid": str(all(row["format_valid"] for row in rows)).lower(),
    }


def _attributes(row: dict[str, Any], seconds: float) -> dict[str, Any]:
    context, sampled = len(row["context_ids"]), len(row["response_ids"])
    return {
        "context_tokens": context,
        **({"chain_start": True} if row["chain_start"] else {}),
        "sampled_tokens": sampled,
        "log_prob": float(sum(row["response_logprobs"])),
        "stop_reason": row["stop_reason"],
        "seconds": seconds,
        "mlflow.chat.tokenUsage": {
            "input_tokens": context,
            "output_tokens": sampled,
            "total_tokens": context + sampled,
        },
    }


def _outputs(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "response": row["response"],
        "thought": row["thought"],
        "answer": row["actions"],
        "executed actions": row["executed"],
        "reward": row["reward"],
        "format valid": row["format_valid"],
        "next observation": row["next_observation"],
    }

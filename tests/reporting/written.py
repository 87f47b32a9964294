"""Small training runs as files, as a report finds them: two iterations, two groups, two evaluated policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from builders import turn_row, turns_table

from starpo.config.reward import FilterConfig
from starpo.evaluation.compare import compare
from starpo.evaluation.metrics import summarise
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.store.run_tables import Run
from starpo.store.runs import new_record, write_record
from starpo.store.schemas import SCHEMA_VERSION, TURNS, UPDATES

BOARD = "P_O\n__G\nPlayer (0,0)."
HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><!-- %%STYLE%% ${1}"
SUITE = "validation-t0_5"


def write_run(
    root: Path,
    name: str,
    *,
    pipeline: str = "train_starpo_s",
    seed: int = 0,
    iterations: int = 2,
    success: tuple[float, float] = (0.25, 0.75),
    **parameters: Any,
) -> Run:
    """A finished run; ``success`` of its first and last policy on four prompts, in quarters."""
    data = root / "data"
    sections = {
        "run": {"seed": seed, "name": name, "iterations": iterations},
        "environment": {"name": "frozen_lake"},
        "rollout": {"groups": 2},
    }
    record = new_record(name, pipeline, sections | parameters).model_copy(update={"state": "finished"})
    write_record(root, record)
    timing = {"seconds_rollout": 2.0, "seconds_update": 5.0, "seconds_sync": 0.5, "seconds_iteration": 8.0}
    lines = [json.dumps({"iteration": iteration} | timing) for iteration in range(iterations)]
    (data / "00_runs" / name / "timings.jsonl").write_text("\n".join(lines) + "\n")
    for iteration in range(iterations):
        turns = turns_table(*_turn_rows(iteration))
        scored = mark_kept(
            score_turns(turns, bind_terms({"environment": {}}), ranges={"frozen_lake": (0.0, 1.0)}),
            FilterConfig(keep_ratio=1.0),
        )
        _table(data / "02_rollouts" / name / f"iter_{iteration:04d}.parquet", turns)
        _table(data / "03_scored" / name / f"iter_{iteration:04d}.parquet", scored)
        _table(data / "05_updates" / name / f"iter_{iteration:04d}.parquet", _updates(iteration))
        _json(data / "05_updates" / name / f"iter_{iteration:04d}.json", _metrics(iteration, seed))
    evaluated = [_evaluated(step, share) for step, share in zip((0, iterations), success, strict=True)]
    for step, table in zip((0, iterations), evaluated, strict=True):
        folder = data / "07_evaluation" / name / SUITE
        _table(folder / f"step_{step:04d}.parquet", table)
        _json(
            folder / f"step_{step:04d}.json", summarise(table) | {"suite": "validation", "temperature": 0.5}
        )
    compared = {"suite": "validation", "temperature": 0.5} | compare(*evaluated)
    _json(data / "08_reporting" / name / f"comparison_{iterations:04d}.json", {"comparisons": [compared]})
    return Run(root, record)


def _turn_rows(iteration: int) -> list[dict[str, Any]]:
    """Group 0 has spread: one member wins in two turns, one thinks hostile thoughts and loses. Group 1 has none."""
    rows = []
    for group in range(2):
        for member in range(2):
            for turn in range(2):
                won = group == 0 and member == 1
                last = turn == 1
                rows.append(
                    turn_row(
                        iteration=iteration,
                        policy_step=iteration,
                        group=group,
                        member=member,
                        turn=turn,
                        observation=BOARD,
                        thought=HOSTILE if member == 0 else "go right",
                        reward=float(won and last),
                        success=won,
                        actions=["Right", "Down"],
                        trajectory_stop="terminated" if won else "turn_limit",
                    )
                )
    return rows


def _updates(iteration: int) -> pa.Table:
    """Group 0 alone was learned from."""
    shared = {key: value for key, value in turn_row().items() if key in UPDATES.names and key in TURNS.names}
    rows = [
        shared
        | {"iteration": iteration, "policy_step": iteration, "member": member, "turn": turn}
        | {"advantages": [0.5, -1.25], "values": [0.0, 0.1], "learner_logprobs": [-0.5, -1.5]}
        | {"ratios": [1.0, 1.1], "schema_version": SCHEMA_VERSION}
        for member in range(2)
        for turn in range(2)
    ]
    return pa.Table.from_pylist(rows, schema=UPDATES)


def _metrics(iteration: int, seed: int) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "policy_step": iteration,
        "status": "trained",
        "success": 0.25 + 0.25 * iteration,
        "return": 0.25 + 0.1 * seed,
        "return_std": 0.35,
        "entropy": 1.0 / (iteration + 1),
        "gradient_norm": 0.5,
        "rollout_tokens": 16.0,
        "trained_tokens": 8,
    }


def _evaluated(step: int, success: float) -> pa.Table:
    """Four prompts, the first ones solved."""
    return turns_table(
        *(
            turn_row(
                policy_step=step,
                split="validation",
                stream="validation",
                temperature=0.5,
                group=group,
                observation=BOARD,
                instance_seed=group,
                success=group < 4 * success,
                reward=float(group < 4 * success),
                thought=HOSTILE,
            )
            for group in range(4)
        )
    )


def _table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))

"""Sampled training trajectories, turn by turn and token by token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from starpo.environments.contract import OWN_FAILURES
from starpo.environments.registry import kind_of
from starpo.errors import UserError
from starpo.mirror.traces import own_info
from starpo.reporting.numbers import records, short, shorts
from starpo.store.layout import Layer
from starpo.store.policies import Policy
from starpo.store.run_tables import Run

_TRAJECTORY = ["group", "member"]


def spread_out(items: Sequence[Any], count: int) -> list[Any]:
    """At most ``count`` of ``items``: the first, the last and evenly spaced ones between them.

    >>> spread_out(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= count:
        return list(items)
    places = np.unique(np.linspace(0, len(items) - 1, count).round().astype(int))
    return [items[place] for place in places.tolist()]


def sample_run(run: Run, *, iterations: int, groups: int) -> dict[str, Any]:
    """Trajectories of some iterations; of each, groups from the highest to the lowest spread of returns."""
    sampled = [
        _sample_iteration(run, iteration, groups) for iteration in spread_out(_played(run), iterations)
    ]
    return {"run": run.name, "iterations": sampled, "vocabulary": vocabulary(run, _token_ids(sampled))}


def _played(run: Run) -> list[int]:
    """Iterations with rollouts and scores; after a run has stopped its tables are empty."""
    found = [
        {number for number, path in run.paths.tables(layer).items() if pq.read_metadata(path).num_rows}
        for layer in (Layer.ROLLOUTS, Layer.SCORED)
    ]
    return sorted(found[0] & found[1] & set(run.iterations))


def _sample_iteration(run: Run, iteration: int, groups: int) -> dict[str, Any]:
    scored, turns = run.scored(iteration), run.turns(iteration)
    spread = scored.groupby("group")["group_std"].first().sort_values(ascending=False, kind="stable")
    chosen = spread_out(spread.index.tolist(), groups)
    played, updates = by_trajectory(turns[turns["group"].isin(chosen)]), _updates(run, iteration)
    return {
        "iteration": iteration,
        "policy_step": int(scored["policy_step"].iloc[0]),
        "of": len(spread),
        "groups": [_group(group, scored, played, updates) for group in chosen],
    }


def _updates(run: Run, iteration: int) -> dict[tuple[int, int, int], dict[str, Any]]:
    """Rows of the update by (group, member, turn); empty where the iteration trained nothing."""
    if not run.paths.table(Layer.UPDATES, iteration).exists():
        return {}
    rows = records(run.updates(iteration))
    return {(int(row["group"]), int(row["member"]), int(row["turn"])): row for row in rows}


def by_trajectory(turns: pd.DataFrame) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Rows of a table of turns by (group, member), each trajectory's in order."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in records(turns.sort_values(["group", "member", "turn"])):
        found.setdefault((int(row["group"]), int(row["member"])), []).append(row)
    return found


def _group(
    group: int,
    scored: pd.DataFrame,
    played: dict[tuple[int, int], list[dict[str, Any]]],
    updates: dict[tuple[int, int, int], dict[str, Any]],
) -> dict[str, Any]:
    rows = records(scored[scored["group"] == group].sort_values("member"))
    members = []
    for row in rows:
        member = int(row["member"])
        turns = [
            turn_of(turn, updates.get((group, member, int(turn["turn"]))), context=True)
            for turn in played.get((group, member), [])
        ]
        members.append(
            {
                "member": member,
                "return": short(row["return"]),
                "success": bool(row["success"]),
                "stop": str(row["trajectory_stop"]),
                "kept": bool(row["kept"]),
                "reason": str(row["reason"]),
                "turns": turns,
            }
        )
    return {
        "group": int(group),
        "environment": str(rows[0]["environment"]),
        "mean": short(rows[0]["group_mean"]),
        "std": short(rows[0]["group_std"]),
        "members": members,
    }


def turn_of(
    row: dict[str, Any], update: dict[str, Any] | None = None, *, context: bool = False
) -> dict[str, Any]:
    """One turn for the page: texts, and one number per sampled token in every list."""
    turn: dict[str, Any] = {
        "observation": row["observation"],
        "response": row["response"],
        "thought": row["thought"],
        "actions": list(row["actions"]),
        "executed": list(row["executed"]),
        "reward": short(row["reward"]),
        "valid": bool(row["format_valid"]),
        "stop": str(row["stop_reason"]),
        "next": row["next_observation"],
        "error": row["error"],
        "ids": [int(each) for each in row["response_ids"]],
        "logprobs": shorts(row["response_logprobs"]),
    }
    if context:
        turn["context"] = [int(each) for each in row["context_ids"]]
    if row["chain_start"]:
        turn["window"] = True
    for name, shown in (("board", turn["observation"]), ("next_board", turn["next"])):
        if rows := board_rows(str(row["environment"]), shown):
            turn[name] = rows
    if told := own_info(row["info"]):
        turn["info"] = told
    if update is not None:
        for name in ("advantages", "values", "ratios"):
            if update[name] is not None:
                turn[name] = shorts(update[name])
    return turn


def board_rows(environment: str, observation: str | None) -> list[int] | None:
    """First line and number of lines of the board in an observation, as the environment's class knows it."""
    try:
        board = kind_of(environment).board_of(observation or "")
        before, found, _ = (observation or "").partition(board or "")
    except OWN_FAILURES:  # it is shown as text
        return None
    return [before.count("\n"), board.count("\n") + 1] if board and found else None


def _token_ids(sampled: Iterable[dict[str, Any]]) -> set[int]:
    turns = [
        turn
        for iteration in sampled
        for group in iteration["groups"]
        for member in group["members"]
        for turn in member["turns"]
    ]
    return {each for turn in turns for each in (*turn["context"], *turn["ids"])}


def vocabulary(run: Run, ids: Iterable[int]) -> dict[str, str]:
    """Texts of tokens by id, from the run's own tokenizer; empty where no policy's files are left."""
    tokenizer = _tokenizer(run)
    if tokenizer is None:
        return {}
    texts = {}
    for each in sorted(set(ids)):
        text = tokenizer.decode([each], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        texts[str(each)] = text
    return texts


def _tokenizer(run: Run) -> Any:
    for directory in run.paths.policies().values():
        try:
            return Policy.open(directory).tokenizer()
        except UserError:
            continue  # a run has gone back behind it
    return None

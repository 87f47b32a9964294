"""Trajectories to the Parquet table of turns and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from starpo.agent.records import Trajectory
from starpo.store.schemas import SCHEMA_VERSION, WINDOWED_VERSION, turns_schema


def trajectories_to_table(
    trajectories: Iterable[Trajectory],
    *,
    policy_step: int,
    temperature: float,
    top_p: float,
    windowed: bool = False,
) -> pa.Table:
    """One row per turn, in the order given; with the column ``chain_start`` if ``windowed``.

    A trajectory without a turn (its first prompt was too long, or ``reset`` failed) has no row; it is named in the
    table's metadata, which the file keeps, see :func:`without_turns`.

    Raises:
        ValueError: the table is to be without windows, and a trajectory has one.
    """
    trajectories = list(trajectories)
    schema = turns_schema(windowed=windowed)
    columns: dict[str, list[object]] = {name: [] for name in schema.names}
    for trajectory in trajectories:
        address = trajectory.address
        for number, turn in enumerate(trajectory.turns):
            if turn.chain_start and not windowed:
                raise ValueError(
                    f"{address}: turn {number} starts a chain, which the table must say (windowed)"
                )
            row = {
                "iteration": address.iteration,
                "policy_step": policy_step,
                "environment": address.environment,
                "split": address.split,
                "stream": address.stream,
                "group": address.group,
                "member": address.member,
                "turn": number,
                "instance_seed": trajectory.instance_seed,
                "dynamics_seed": trajectory.dynamics_seed,
                "sampling_seed": turn.sampling_seed,
                "temperature": temperature,
                "top_p": top_p,
                "observation": turn.observation,
                "context_ids": list(turn.context_ids),
                "response": turn.response,
                "response_ids": list(turn.response_ids),
                "response_logprobs": list(turn.response_logprobs),
                "stop_reason": turn.stop_reason.value,
                "thought": turn.thought,
                "actions": list(turn.actions),
                "executed": list(turn.executed),
                "format_valid": turn.format_valid,
                "reward": turn.reward,
                "effective": turn.effective,
                "next_observation": turn.next_observation,
                "terminated": turn.terminated,
                "truncated": turn.truncated,
                "success": turn.success,
                "trajectory_stop": trajectory.stop_reason.value if trajectory.stop_reason else None,
                "error": trajectory.error,
                "info": json.dumps(turn.info, sort_keys=True, default=str),
                "schema_version": WINDOWED_VERSION if windowed else SCHEMA_VERSION,
            }
            if windowed:
                row["chain_start"] = turn.chain_start
            for name, value in row.items():
                columns[name].append(value)
    table = pa.table([pa.array(columns[field.name], type=field.type) for field in schema], schema=schema)
    missing = [_missing(trajectory) for trajectory in trajectories if not trajectory.turns]
    return table.replace_schema_metadata({_WITHOUT_TURNS: json.dumps(missing)}) if missing else table


_WITHOUT_TURNS = "starpo.without_turns"


def _missing(trajectory: Trajectory) -> dict[str, Any]:
    return {
        **dataclasses.asdict(trajectory.address),
        "instance_seed": trajectory.instance_seed,
        "dynamics_seed": trajectory.dynamics_seed,
        "trajectory_stop": trajectory.stop_reason.value if trajectory.stop_reason else None,
        "error": trajectory.error,
    }


def without_turns(turns: pa.Table) -> list[dict[str, Any]]:
    """Trajectories of a table that have no row: address, seeds, ``trajectory_stop`` and ``error`` of each."""
    found: list[dict[str, Any]] = json.loads(
        (turns.schema.metadata or {}).get(_WITHOUT_TURNS.encode(), b"[]")
    )
    return found

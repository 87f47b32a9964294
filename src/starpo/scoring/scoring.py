"""From turns to scored trajectories, and the filter's verdict on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import GatesConfig, QuarantineConfig
from starpo.config.reward import PLAIN_TERMS, FilterConfig, NormalizeConfig, RewardConfig
from starpo.config.run import RunConfig
from starpo.gates.expected import Expected, Range, return_ranges
from starpo.gates.quarantine import score_faults, turn_faults
from starpo.rewards.bind import Term, bind_terms
from starpo.rewards.total import score, trajectory_return, turn_rewards
from starpo.rewards.trajectory import States, Trajectory
from starpo.scoring.normalisation import learned_rewards
from starpo.scoring.states import known_states
from starpo.scoring.stored import READ, stored_trajectory
from starpo.seeds import Purpose, SeedKey
from starpo.store.layout import RunPaths
from starpo.store.schemas import DETAILED_SCORED, DETAILED_VERSION, SCHEMA_VERSION, SCORED

_EXACT = pa.schema(
    [
        *(SCORED.field(name) for name in ("group", "member", "quarantined")),
        ("turn_rewards", pa.list_(pa.float64())),
        ("return", pa.float64()),
    ]
)
"""What the rules of scores look at, before it is rounded."""


def score_turns(
    turns: pa.Table,
    terms: Mapping[str, Term],
    rules: QuarantineConfig | None = None,
    ranges: Mapping[str, Range] | None = None,
    scales: Mapping[str, float] | None = None,
    states: States | None = None,
    normalize: NormalizeConfig | None = None,
) -> pa.Table:
    """One scored row per trajectory, nothing filtered yet; rows of ``turns`` are in order.

    A trajectory that an environment's error ended, or that breaks a rule, is quarantined: zero weight, no part in
    group statistics, and no member of the group that a term sees.

    Args:
        turns: a table with the schema ``TURNS``.
        terms: reward terms by name.
        rules: limits of log-probs and rewards; None: the defaults.
        ranges: return range by environment name; None: no bounds.
        scales: factor on the environment's rewards by its name, before the reward terms; absent names have 1.
        states: what is known of the states behind observations; None: nothing.
        normalize: how the rewards that are learned from are normalised; None: they are the raw ones.

    Returns:
        ``SCORED``, or ``DETAILED_SCORED`` where a term is in use that the turns' own columns do not show, or a
        normalisation.

    Raises:
        UserError: a term failed; the message names it and the trajectory.
    """
    expected = Expected(quarantine=rules or QuarantineConfig(), ranges=ranges or {})
    faults = turn_faults(turns, expected)
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in turns.select(list(READ)).to_pylist():
        rows.setdefault((row["group"], row["member"]), []).append(row)
    known, factors = states or States(), scales or {}
    stored = {
        key: stored_trajectory(own, known, factors.get(own[-1]["environment"], 1.0))
        for key, own in rows.items()
    }
    for term in terms.values():
        term.prepare(list(stored.values()))
    groups: dict[int, list[Trajectory]] = {}
    for key, trajectory in stored.items():
        if key not in faults:
            groups.setdefault(key[0], []).append(trajectory)
    scored = [
        _score_one(
            rows[key], trajectory, [each for each in groups.get(key[0], ()) if each is not trajectory], terms
        )
        | {"quarantined": key in faults}
        for key, trajectory in stored.items()
    ]
    # Not in the table's float32: the limits are those of what was summed.
    exact = pa.Table.from_pylist(scored, schema=_EXACT)
    faults = score_faults(exact, expected) | faults
    for row in scored:
        reason = faults.get((row["group"], row["member"]), "")
        row |= {"quarantined": bool(reason), "reason": reason}
    if normalize is None and terms.keys() <= PLAIN_TERMS:
        return pa.Table.from_pylist(scored, schema=SCORED)
    for row, learned in zip(scored, learned_rewards(scored, normalize), strict=True):
        row |= {"learned_rewards": learned, "schema_version": DETAILED_VERSION}
    return pa.Table.from_pylist(scored, schema=DETAILED_SCORED)


def score_rollouts(
    turns: pa.Table,
    reward: RewardConfig,
    gates: GatesConfig,
    environment: EnvironmentConfig,
    run: RunConfig,
) -> pa.Table:
    """:func:`score_turns` by the parameters of a run."""
    folder = None if run.name is None else RunPaths(Path(), run.name).rewards
    return score_turns(
        turns,
        bind_terms(reward.active, folder),
        gates.quarantine,
        return_ranges(environment),
        {member.known_as: member.reward_scale for member in environment.mixture or ()},
        known_states(environment),
        reward.normalize,
    )


def _score_one(
    rows: list[dict[str, Any]], trajectory: Trajectory, group: list[Trajectory], terms: Mapping[str, Term]
) -> dict[str, Any]:
    """The row of a trajectory, but for whether it is at fault and what is learned."""
    last = rows[-1]
    rewards = np.array([row["reward"] for row in rows], dtype=np.float64)
    scores = score(trajectory, group, terms)
    sampled = sum(len(turn.response_ids) for turn in trajectory.turns)
    return {
        **{name: last[name] for name in READ[:7]},
        "turn_rewards": turn_rewards(scores.values, len(rows)).tolist(),
        "environment_return": float(np.where(np.isfinite(rewards), rewards, 0.0).sum()),
        "terms": json.dumps(
            {name: float(vector.sum()) for name, vector in scores.values.items()}, sort_keys=True
        ),
        "return": trajectory_return(scores.values),
        "success": trajectory.success,
        "turns": len(rows),
        "actions": sum(len(row["executed"]) for row in rows),
        "response_tokens": sampled,
        "tokens": sampled + sum(len(row["context_ids"] or ()) for row in rows),
        "format_valid_share": float(np.mean([row["format_valid"] for row in rows])),
        "trajectory_stop": last["trajectory_stop"],
        "group_mean": 0.0,
        "group_std": 0.0,
        "kept": False,
        "turn_terms": json.dumps(
            {name: vector.tolist() for name, vector in scores.values.items()}, sort_keys=True
        ),
        "missing": json.dumps(scores.missing, sort_keys=True),
        "schema_version": SCHEMA_VERSION,
    }


def mark_kept(scored: pa.Table, config: FilterConfig, seed: int = 0) -> pa.Table:
    """Fill group statistics, ``kept`` and ``reason``; no row is dropped. ``seed`` is the run's, for mode ``random``."""
    from starpo.algorithms.filters import select_groups  # noqa: PLC0415 - loads torch

    rows = scored.to_pylist()
    usable = [row for row in rows if not row["quarantined"]]
    if not usable:
        return scored
    iteration = usable[0]["iteration"]
    result = select_groups(
        [row["return"] for row in usable],
        [row["group"] for row in usable],
        keep_ratio=config.keep_ratio,
        mode=config.mode,
        min_std=config.min_std,
        keep_zero_spread=config.keep_zero_spread,
        # A group's lot does not depend on how many there are, so a further round changes none.
        lot=lambda group: (
            SeedKey(seed, Purpose.FILTER, iteration=iteration, group=group).generator().random()
        ),
    )
    at = {int(group): position for position, group in enumerate(result.group_ids)}
    for row in usable:
        position = at[row["group"]]
        row["group_mean"] = float(result.mean[position])
        row["group_std"] = float(result.std[position])
        row["kept"] = bool(result.kept[position])
        row["reason"] = result.reasons[position]
    return pa.Table.from_pylist(rows, schema=scored.schema)

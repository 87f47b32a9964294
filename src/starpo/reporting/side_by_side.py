"""The same evaluation prompt under the first, the best and the last policy of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from starpo.reporting.numbers import short
from starpo.reporting.trajectories import by_trajectory, turn_of, vocabulary
from starpo.store.run_tables import Run


def side_by_side(run: Run, summaries: list[dict[str, Any]], *, prompts: int) -> dict[str, Any] | None:
    """The first, the best and the last evaluated policy on the same prompts; None with fewer than two policies.

    The suite is the one with most policies. Of ``prompts`` prompts up to half are ones that the policies fare
    differently on, the others the suite's first; of several samples of a prompt the first is shown.
    """
    steps: dict[str, dict[int, float]] = {}
    for row in summaries:
        steps.setdefault(str(row["suite"]), {})[int(row["step"])] = float(row["success"])
    if not steps:
        return None
    suite = max(sorted(steps), key=lambda name: len(steps[name]))
    success = steps[suite]
    if len(success) < 2:
        return None
    first, last = min(success), max(success)
    best = max(sorted(success), key=lambda step: success[step])
    roles = [("base", first), ("best", best), ("last", last)]
    if best in (first, last):
        roles = [
            ("base, best" if best == first else "base", first),
            ("last, best" if best == last else "last", last),
        ]
    tables = [run.evaluation(suite, step).query("member == 0") for _, step in roles]
    chosen = _prompts(tables, prompts)
    played = [_played_prompts(table, chosen) for table in tables]
    policies = [
        {"role": role, "step": step, "success": short(success[step]), "prompts": trajectories}
        for (role, step), trajectories in zip(roles, played, strict=True)
    ]
    turns = [turn for trajectories in played for each in trajectories for turn in each["turns"]]
    ids = {token for turn in turns for token in turn["ids"]}
    return {
        "run": run.name,
        "suite": suite,
        "prompts": chosen,
        "policies": policies,
        "vocabulary": vocabulary(run, ids),
    }


def _prompts(tables: Sequence[pd.DataFrame], count: int) -> list[int]:
    outcomes = pd.concat([table.groupby("group")["success"].first() for table in tables], axis=1).dropna()
    differing = outcomes.index[outcomes.nunique(axis=1) > 1].tolist()[: count // 2]
    others = [prompt for prompt in outcomes.index.tolist() if prompt not in differing]
    return sorted(differing + others[: count - len(differing)])


def _played_prompts(table: pd.DataFrame, prompts: Sequence[int]) -> list[dict[str, Any]]:
    trajectories = by_trajectory(table[table["group"].isin(prompts)])
    return [
        {
            "prompt": prompt,
            "success": bool(rows[-1]["success"]),
            "return": short(sum(float(row["reward"]) for row in rows)),
            "stop": str(rows[-1]["trajectory_stop"]),
            "turns": [turn_of(row) for row in rows],
        }
        for prompt, rows in ((prompt, trajectories[prompt, 0]) for prompt in prompts)
    ]

"""Two policies on the same prompts with the same luck: the paired difference with its interval."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from starpo.errors import UserError
from starpo.evaluation.intervals import (
    mean_interval,
    paired_mean_difference,
    paired_rate_difference,
    proportion_interval,
)
from starpo.evaluation.metrics import PAPER_PROMPTS, with_bounds
from starpo.evaluation.trajectories import Trajectories, read_trajectories

_SAME_SUITE = ("environment", "split", "stream", "temperature", "top_p")
_SAME_START = ("instance_seed", "dynamics_seed", "sampling_seed", "observation")


def compare(base_turns: pa.Table, after_turns: pa.Table) -> dict[str, float | int | str]:
    """Success and return before and after, and their difference; the keys are explained in ``COMPARISON``.

    Raises:
        UserError: a table is empty or mixes suites, or the two differ in suite, prompts or seeds; the message
            names the first row that differs.
    """
    before, after = read_trajectories(base_turns), read_trajectories(after_turns)
    _check_paired(before, after)
    result: dict[str, float | int | str] = {
        "suite": before.suite["stream"],
        "environment": before.suite["environment"],
        "temperature": round(float(before.suite["temperature"]), 6),
        "policy_step_before": int(before.suite["policy_step"]),
        "policy_step_after": int(after.suite["policy_step"]),
    }
    head = before.group < PAPER_PROMPTS
    if not head.any():
        raise UserError(f"no prompt below {PAPER_PROMPTS}; compare whole suites, from prompt 0 on")
    return (
        result
        | _differences(before, after, np.ones_like(head), "")
        | _differences(before, after, head, "_256")
    )


def _differences(
    before: Trajectories, after: Trajectories, chosen: NDArray[np.bool_], suffix: str
) -> dict[str, float | int | str]:
    prompts = before.group[chosen]
    success = before.success[chosen], after.success[chosen]
    returns = before.returns[chosen], after.returns[chosen]
    return {
        f"prompts{suffix}": len(np.unique(prompts)),
        f"trajectories{suffix}": len(prompts),
        **with_bounds("success_before", proportion_interval(success[0], prompts), suffix),
        **with_bounds("success_after", proportion_interval(success[1], prompts), suffix),
        **with_bounds("success_difference", paired_rate_difference(*success, prompts), suffix),
        **with_bounds("return_before", mean_interval(returns[0], prompts), suffix),
        **with_bounds("return_after", mean_interval(returns[1], prompts), suffix),
        **with_bounds("return_difference", paired_mean_difference(*returns, prompts), suffix),
    }


def _check_paired(before: Trajectories, after: Trajectories) -> None:
    for name in _SAME_SUITE:
        if before.suite[name] != after.suite[name]:
            raise UserError(
                f"the two evaluations are not of one suite: {name} is {before.suite[name]!r} before and "
                f"{after.suite[name]!r} after. Evaluate both policies on the same suite."
            )
    keys = [list(zip(t.group.tolist(), t.member.tolist(), strict=True)) for t in (before, after)]
    if keys[0] != keys[1]:
        group, member = min(set(keys[0]) ^ set(keys[1]))
        where = "before" if (group, member) in set(keys[0]) else "after"
        raise UserError(
            f"prompt {group}, sample {member} was evaluated only {where}: the two cannot be paired. "
            "Evaluate both policies with the same prompts and samples."
        )
    first = [(column, before.first(column), after.first(column)) for column in _SAME_START]
    for row, (group, member) in enumerate(keys[0]):
        for name, left, right in first:
            if left[row] != right[row]:
                raise UserError(
                    f"prompt {group}, sample {member} (trajectory {row}) differs: {name} is "
                    f"{left[row]!r} before and {right[row]!r} after. "
                    "Evaluate both policies with the same evaluation.seed and the same version of the prompts: "
                    "an evaluation from before they changed must be played again."
                )

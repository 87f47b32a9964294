"""The table of what an update saw per sampled token."""

from __future__ import annotations

import pyarrow as pa
from torch import Tensor

from starpo.learning.batching import Sequences
from starpo.learning.learner import UpdateResult
from starpo.store.policies import Policy
from starpo.store.schemas import SCHEMA_VERSION, UPDATES


def updates_to_table(batch: Sequences, result: UpdateResult, policy: Policy) -> pa.Table:
    """One row per turn of every trained trajectory; lists run over the turn's sampled tokens.

    Log-probs and ratios are null where no pass of the actor reached the trajectory.
    """
    ratios = (result.learner_logp - batch.old_logp).exp()
    columns = {
        "advantages": result.advantages,
        "values": result.values,
        "learner_logprobs": result.learner_logp,
        "ratios": ratios,
    }
    rows = []
    for row, (group, member) in enumerate(batch.keys):
        for turn in range(int(batch.turn_mask[row].sum())):
            here = batch.mask[row] & (batch.turn_index[row] == turn)
            rows.append(
                {
                    "iteration": policy.iteration,
                    "policy_step": policy.step,
                    "environment": batch.environments[row],
                    "split": "train",
                    "stream": "train",
                    "group": group,
                    "member": member,
                    "turn": turn,
                    "schema_version": SCHEMA_VERSION,
                    **{name: _numbers(tensor[row][here]) for name, tensor in columns.items()},
                }
            )
    return pa.Table.from_pylist(rows, schema=UPDATES)


def _numbers(values: Tensor) -> list[float] | None:
    return None if bool(values.isnan().all()) and len(values) else values.tolist()

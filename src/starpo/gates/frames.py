"""Tables as flat pandas frames that expectations can look at: scalars only, lists as their lengths and extremes.

Derived columns are null in rows that they do not concern; expectations leave null out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from starpo.environments.registry import make
from starpo.environments.splits import DeclaresSplit, split_of
from starpo.gates.expected import Expected
from starpo.gates.quarantine import extremes_of, list_lengths, return_excess

FOREIGN = "not the observation of its instance_seed"
"""Stands for the split of an observation that its instance does not begin with."""


def turns_frame(turns: pa.Table, expected: Expected) -> pd.DataFrame:
    """One row per turn.

    Derived columns: ``n_context``, ``n_tokens``, ``n_logprobs``, ``smallest_logprob``, ``largest_logprob``,
    ``logprobs_finite``; at each trajectory's last turn ``return_excess``, how far its return is outside the
    environment's range; at its first turn ``own_split``, the split that the observation belongs to; at each
    group's first row ``members``, the trajectories of the group; at the first row of all ``missing_share``, the
    share of trajectories without a row, of ``group_size`` in each group up to the highest number.
    """
    frame = _scalars(turns)
    frame["n_context"] = list_lengths(turns, "context_ids")
    frame["n_tokens"] = list_lengths(turns, "response_ids")
    frame["n_logprobs"] = list_lengths(turns, "response_logprobs")
    low, high, finite = extremes_of(turns, "response_logprobs")
    frame["smallest_logprob"], frame["largest_logprob"], frame["logprobs_finite"] = low, high, finite
    group, member = frame["group"].to_numpy(), frame["member"].to_numpy()
    starts = _starts(group, member)
    ends = np.r_[starts[1:], len(frame)] - 1
    reward = np.nan_to_num(frame["reward"].to_numpy(dtype=np.float64), posinf=0.0, neginf=0.0)
    environments = frame["environment"].to_numpy(dtype=object)[starts]
    excess = return_excess(np.add.reduceat(reward, starts), environments, expected.ranges)
    frame["return_excess"] = _at(len(frame), ends, excess)
    own = np.full(len(frame), None, dtype=object)
    own[starts] = _own_splits(frame.iloc[starts], expected)
    frame["own_split"] = own
    numbers, firsts, counts = np.unique(group[starts], return_index=True, return_counts=True)
    frame["members"] = _at(len(frame), starts[firsts], counts)
    whole = max(int(numbers[-1]) + 1, expected.groups or 0) * (expected.group_size or 0)
    share = 1 - len(starts) / whole if whole else np.nan
    frame["missing_share"] = _at(len(frame), np.array([0]), np.array([share]))
    return frame


def scored_frame(scored: pa.Table) -> pd.DataFrame:
    """One row per trajectory.

    Derived columns, the first three null where the trajectory is quarantined: ``usable_return``,
    ``return_error`` (return minus sum of turn rewards, absolute), ``largest_reward`` (of a turn, absolute); then
    ``turn_rewards_missing`` (turns minus rewards), ``kept_quarantined``, ``quarantined_share`` (0 or 1 per row,
    its mean is the share) and at each group's first row ``kept_partly`` (1 where some of its usable members are
    kept and others not).
    """
    frame = _scalars(scored)
    usable = ~frame["quarantined"].to_numpy(dtype=bool)
    lengths = list_lengths(scored, "turn_rewards")
    values = pc.list_flatten(scored["turn_rewards"]).to_numpy().astype(np.float64)
    owners = np.repeat(np.arange(len(frame)), lengths)
    sums, largest = np.bincount(owners, weights=values, minlength=len(frame)), np.zeros(len(frame))
    np.maximum.at(largest, owners, np.abs(values))
    total = frame["return"].to_numpy(dtype=np.float64)
    frame["usable_return"] = np.where(usable, total, np.nan)
    frame["return_error"] = np.where(usable, np.abs(total - sums), np.nan)
    frame["largest_reward"] = np.where(usable, largest, np.nan)
    frame["turn_rewards_missing"] = frame["turns"].to_numpy() - lengths
    kept, group = frame["kept"].to_numpy(dtype=bool), frame["group"].to_numpy()
    frame["kept_quarantined"] = kept & ~usable
    frame["quarantined_share"] = (~usable).astype(np.float64)
    _, first, index = np.unique(group, return_index=True, return_inverse=True)
    usable_members = np.bincount(index, weights=usable)
    kept_members = np.bincount(index, weights=kept & usable)
    frame["kept_partly"] = _at(len(frame), first, (kept_members > 0) & (kept_members < usable_members))
    return frame


def updates_frame(updates: pa.Table) -> pd.DataFrame:
    """One row per trained turn.

    Derived columns: ``n_advantages``, ``uneven`` (longest minus shortest of the four lists, where log-probs and ratios
    may both be null instead), ``finite`` (of all of them), ``largest_logprob``, ``smallest_ratio``.
    """
    frame = _scalars(updates)
    lists = ("advantages", "values", "learner_logprobs", "ratios")
    lengths = {column: list_lengths(updates, column) for column in lists}
    extremes = {column: extremes_of(updates, column) for column in lists}
    frame["n_advantages"] = lengths["advantages"]
    unreached = (updates["learner_logprobs"].is_null().to_numpy()) & (updates["ratios"].is_null().to_numpy())
    for column in ("learner_logprobs", "ratios"):
        lengths[column] = np.where(unreached, lengths["advantages"], lengths[column])
    frame["uneven"] = np.ptp(np.stack(list(lengths.values())), axis=0)
    frame["finite"] = np.logical_and.reduce([finite for *_, finite in extremes.values()])
    frame["largest_logprob"] = extremes["learner_logprobs"][1]
    frame["smallest_ratio"] = extremes["ratios"][0]
    return frame


def metrics_frame(metrics: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """One row per metric: ``metric``, ``value``, ``low``, ``high``, ``finite`` and ``outside``, how far out it is."""
    numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    rows = [(name, value, *bounds.get(name, (-np.inf, np.inf))) for name, value in sorted(numbers.items())]
    frame = pd.DataFrame(rows, columns=["metric", "value", "low", "high"])
    frame["finite"] = np.isfinite(frame["value"])
    outside = np.maximum(frame["low"] - frame["value"], frame["value"] - frame["high"])
    frame["outside"] = np.where(frame["finite"], np.maximum(outside, 0.0), 0.0)
    return frame


def scalar_columns(schema: pa.Schema) -> list[str]:
    """Names of the columns that are no lists."""
    return [field.name for field in schema if not pa.types.is_list(field.type)]


def _scalars(table: pa.Table) -> pd.DataFrame:
    """The columns that are no lists; dictionaries become text."""
    columns = {}
    for name in scalar_columns(table.schema):
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns[name] = column.to_pandas()
    return pd.DataFrame(columns)


def _starts(group: NDArray[Any], member: NDArray[Any]) -> NDArray[np.int64]:
    """Rows at which another trajectory begins; the turns of one are together."""
    return np.flatnonzero(np.r_[True, (np.diff(group) != 0) | (np.diff(member) != 0)])


def _at(rows: int, where: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.float64]:
    """[rows], ``values`` at ``where`` and null elsewhere."""
    column = np.full(rows, np.nan)
    column[where] = values
    return column


def _own_splits(first_turns: pd.DataFrame, expected: Expected) -> list[str]:
    """The split of each first turn's instance: by its observation, or as its environment declares."""
    made: dict[str, Any] = {}
    declared: dict[tuple[str, int], tuple[str, str]] = {}
    splits = []
    for name, seed, observation in zip(
        first_turns["environment"], first_turns["instance_seed"], first_turns["observation"], strict=True
    ):
        if name not in made:
            made[name] = make(expected.names.get(name, name), **expected.arguments.get(name, {}))
        if not isinstance(made[name], DeclaresSplit):
            splits.append(str(split_of(str(observation))))
            continue
        if (name, seed) not in declared:
            begins_with, _ = made[name].reset(seed=int(seed))
            declared[name, seed] = begins_with, str(made[name].declared_split())
        begins_with, split = declared[name, seed]
        splits.append(split if begins_with == observation else FOREIGN)
    return splits

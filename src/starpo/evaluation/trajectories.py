"""From the table of turns to trajectories: one value each, vectorised, or one record each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from starpo.agent.records import StopReason
from starpo.errors import UserError

ONE_SUITE = ("iteration", "policy_step", "environment", "split", "stream", "temperature", "top_p")
"""Columns that hold one value in a table of one suite and one policy."""


@dataclass(frozen=True)
class Trajectories:
    """One suite of one policy, N trajectories sorted by (group, member)."""

    turns: pa.Table
    """All turns, sorted by (group, member, turn)."""
    starts: NDArray[np.int64]
    """[N], row of each trajectory's first turn."""
    suite: dict[str, Any]
    """The value of each column of ``ONE_SUITE``."""
    group: NDArray[np.int64]
    """[N], prompt index."""
    member: NDArray[np.int64]
    """[N], sample of that prompt."""
    success: NDArray[np.bool_]
    """[N], solved after one of its turns."""
    returns: NDArray[np.float64]
    """[N], sum of the environment's rewards."""

    def __len__(self) -> int:
        return len(self.starts)

    def total(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum of a per-turn array over each trajectory: [N]."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64), self.starts)

    def column(self, name: str) -> NDArray[Any]:
        """A per-turn column as an array."""
        return self.turns[name].combine_chunks().to_numpy(zero_copy_only=False)

    def first(self, name: str) -> list[Any]:
        """[N], a column at each trajectory's first turn."""
        return _plain(self.turns[name]).take(pa.array(self.starts)).to_pylist()

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Per turn, the length of a list column; null counts as empty."""
        return pc.fill_null(pc.list_value_length(self.turns[name]), 0).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class PlayedTurn:
    """What a stored turn says about its actions."""

    actions: tuple[str, ...]
    """Legal actions of the response, within the turn's limit."""
    executed: tuple[str, ...]
    """Those that were done before the episode ended."""
    cut_off: bool
    """The response ended at the token limit."""
    next_observation: str
    """State text after the turn."""
    terminated: bool
    """The environment ended the episode in this turn."""


@dataclass(frozen=True)
class Episode:
    """One stored trajectory, as far as a replay needs it."""

    group: int
    """Prompt index."""
    member: int
    """Sample of that prompt."""
    instance_seed: int
    """Seed of the task."""
    dynamics_seed: int
    """Seed of its luck."""
    stop: str | None
    """Why it ended, a value of ``StopReason``."""
    success: bool
    """Solved."""
    returned: float
    """Sum of the environment's rewards."""
    turns: tuple[PlayedTurn, ...]
    """In order; at least one."""

    @property
    def plan(self) -> tuple[str, ...]:
        """All actions done, and those of the last response that the end of the episode cut off."""
        done = [action for turn in self.turns for action in turn.executed]
        last = self.turns[-1]
        return (*done, *last.actions[len(last.executed) :])


def episodes(t: Trajectories) -> list[Episode]:
    """[N], the trajectories as records."""
    columns = ["actions", "executed", "next_observation", "terminated"]
    rows = t.turns.select(columns).to_pylist()
    reasons = _plain(t.turns["stop_reason"]).to_pylist()
    firsts = zip(t.first("instance_seed"), t.first("dynamics_seed"), t.first("trajectory_stop"), strict=True)
    ends = [*t.starts[1:].tolist(), len(rows)]
    found = []
    for number, (instance_seed, dynamics_seed, stop) in enumerate(firsts):
        turns = tuple(
            PlayedTurn(
                actions=tuple(rows[row]["actions"] or ()),
                executed=tuple(rows[row]["executed"] or ()),
                cut_off=reasons[row] == StopReason.LENGTH,
                next_observation=rows[row]["next_observation"] or "",
                terminated=bool(rows[row]["terminated"]),
            )
            for row in range(int(t.starts[number]), ends[number])
        )
        found.append(
            Episode(
                group=int(t.group[number]),
                member=int(t.member[number]),
                instance_seed=instance_seed,
                dynamics_seed=dynamics_seed,
                stop=stop,
                success=bool(t.success[number]),
                returned=float(t.returns[number]),
                turns=turns,
            )
        )
    return found


def read_trajectories(turns: pa.Table) -> Trajectories:
    """Group the rows of one suite by trajectory.

    Raises:
        UserError: the table is empty, mixes suites or policies, or holds a turn twice.
    """
    if not turns.num_rows:
        raise UserError(
            "the table of turns is empty: no trajectory was evaluated, so there is no success rate. "
            "Check the evaluation's prompts and max_tokens_per_trajectory, then run it again."
        )
    turns = turns.sort_by([("group", "ascending"), ("member", "ascending"), ("turn", "ascending")])
    suite = {name: _single(turns, name) for name in ONE_SUITE}
    group, member, turn = (turns[name].to_numpy().astype(np.int64) for name in ("group", "member", "turn"))
    new = np.r_[True, (np.diff(group) != 0) | (np.diff(member) != 0)]
    repeated = np.flatnonzero(~new & np.r_[False, np.diff(turn) == 0])
    if len(repeated):
        row = repeated[0]
        raise UserError(
            f"turn {turn[row]} of prompt {group[row]}, sample {member[row]} appears twice: "
            "two evaluations were joined in one table. Summarise them one by one."
        )
    starts = np.flatnonzero(new)
    success = pc.fill_null(turns["success"], False).to_numpy()
    reward = turns["reward"].to_numpy().astype(np.float64)
    return Trajectories(
        turns=turns,
        starts=starts,
        suite=suite,
        group=group[starts],
        member=member[starts],
        success=np.logical_or.reduceat(success, starts),
        returns=np.add.reduceat(reward, starts),
    )


def _single(turns: pa.Table, name: str) -> Any:
    values = pc.unique(_plain(turns[name])).to_pylist()
    if len(values) > 1:
        raise UserError(
            f"the table of turns mixes {name} = {values[0]!r} and {values[1]!r}; "
            "metrics are of one suite and one policy. Select the rows first."
        )
    return values[0]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

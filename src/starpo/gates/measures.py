"""What the rules look at: a number or a word per row, null in rows that a rule does not concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from starpo.environments.registry import make
from starpo.environments.splits import DeclaresSplit, split_of
from starpo.gates.facts import Facts
from starpo.store.schemas import schema_of

Numbers = NDArray[Any]
Words = NDArray[np.object_]

#: Lists of an update's table, an entry per sampled token each.
PER_TOKEN = ("advantages", "values", "learner_logprobs", "ratios")


def schema_problem(schema: pa.Schema, kind: str) -> str | None:
    """How ``schema`` differs from that of the table kind (a missing, odd or mistyped column), or None."""
    names, expected = schema.names, schema_of(kind, schema.names)
    for field in expected:
        if field.name not in names:
            return f"the column {field.name!r} is missing"
        if schema.field(field.name).type != field.type:
            return f"the column {field.name!r} holds {schema.field(field.name).type}, expected {field.type}"
    wanted = expected.names
    if odd := [name for name in names if name not in wanted]:
        return f"the column {odd[0]!r} does not belong to a table of {kind}"
    if names != wanted:
        return f"the columns are not in their order: {', '.join(wanted)}"
    return None


def null_keys(facts: Facts) -> Words:
    """The key column that is null."""
    words = np.full(facts.rows, None, dtype=object)
    for name in ("iteration", "policy_step", "group", "member"):
        words[facts.table[name].is_null().to_numpy()] = name
    return words


def differences(facts: Facts) -> Words:
    """What tells a row's policy or stream from that of the first row."""
    words = np.full(facts.rows, None, dtype=object)
    for name in ("iteration", "policy_step", "stream", "split"):
        values = facts.column(name)
        other = values != values[0]
        words[other] = [f"{name} {value} instead of {values[0]}" for value in values[other]]
    return words


def occurrences(*, of_turns: bool) -> Callable[[Facts], Numbers]:
    """Rows that are of the same trajectory, and where the table is ``of_turns`` of the same turn."""

    def measure(facts: Facts) -> Numbers:
        key = facts.index * 2**32 + facts.column("turn") if of_turns else facts.index
        _, index, counts = np.unique(key, return_inverse=True, return_counts=True)
        return counts[index]

    return measure


def turn_jumps(facts: Facts) -> Numbers:
    """The turn's number, less that of the row before in the same trajectory and 1."""
    turn = np.nan_to_num(facts.column("turn"), nan=-2)
    goes_on = np.r_[False, np.diff(facts.index) == 0]
    return turn - np.where(goes_on, np.r_[0, turn[:-1] + 1], 0)


def odd_chain_starts(facts: Facts) -> Words:
    """``chain_start`` where it is null or, before any chain, true."""
    if "chain_start" not in facts.table.column_names:
        return np.full(facts.rows, None, dtype=object)
    unknown = facts.table["chain_start"].is_null().to_numpy()
    starts = facts.table["chain_start"].fill_null(False).to_numpy()
    return facts.words(
        unknown | (starts & (facts.column("turn") == 0)), np.where(unknown, "null", starts.astype(str))
    )


def column(name: str) -> Callable[[Facts], NDArray[Any]]:
    """A column as it is."""
    return lambda facts: facts.column(name)


def lengths(name: str) -> Callable[[Facts], Numbers]:
    """Lengths of a column's lists."""
    return lambda facts: facts.lengths(name)


def lowest(name: str) -> Callable[[Facts], Numbers]:
    """Smallest finite entries of a column's lists."""
    return lambda facts: facts.extremes(name)[0]


def highest(name: str) -> Callable[[Facts], Numbers]:
    """Largest finite entries of a column's lists."""
    return lambda facts: facts.extremes(name)[1]


def infinite(*names: str) -> Callable[[Facts], Words]:
    """The column whose list holds an entry that is NaN or infinite."""

    def measure(facts: Facts) -> Words:
        words = np.full(facts.rows, None, dtype=object)
        for name in names:
            words[~facts.extremes(name)[2]] = name
        return words

    return measure


def not_finite(name: str) -> Callable[[Facts], Words]:
    """The values of a column that are null, NaN or infinite."""

    def measure(facts: Facts) -> Words:
        values = facts.column(name).astype(np.float64)
        return facts.words(~np.isfinite(values), values)

    return measure


def foreign_splits(facts: Facts) -> Words:
    """At a trajectory's first turn, the split that its instance belongs to where that is not the row's.

    By the observation, or as the environment declares for the instance's seed.
    """
    made: dict[str, Any] = {}
    declared: dict[tuple[str, int], tuple[str, str]] = {}
    names = ("environment", "instance_seed", "observation", "split")
    columns = [facts.column(name)[facts.firsts] for name in names]
    words = np.full(facts.rows, None, dtype=object)
    for row, name, seed, observation, split in zip(facts.firsts, *columns, strict=True):
        if name not in made:
            registered = facts.expected.names.get(name, name)
            made[name] = make(registered, **facts.expected.arguments.get(name, {}))
        if not isinstance(made[name], DeclaresSplit):
            own = str(split_of(str(observation)))
        else:
            if (name, seed) not in declared:
                begins_with, _ = made[name].reset(seed=int(seed))
                declared[name, seed] = begins_with, str(made[name].declared_split())
            begins_with, own = declared[name, seed]
            own = own if begins_with == observation else "not the observation of its instance_seed"
        if own != split:
            words[row] = own
    return words


def environment_errors(facts: Facts) -> Words:
    """At a trajectory's last turn, that an exception of its environment ended it."""
    stops = facts.column("trajectory_stop")
    wrong = np.zeros(facts.rows, dtype=bool)
    wrong[facts.lasts] = stops[facts.lasts] == "environment_error"
    return facts.words(wrong, stops)


def return_excess(facts: Facts) -> Numbers:
    """At a trajectory's last turn, by how much its return lies outside its environment's range."""
    rewards = np.nan_to_num(facts.column("reward").astype(np.float64), posinf=0.0, neginf=0.0)
    returns = np.bincount(facts.index, weights=rewards)
    bounds = {name: facts.expected.ranges.get(name, (-np.inf, np.inf)) for name in _environments(facts)}
    low, high = np.array([bounds[name] for name in _environments(facts)]).T
    return facts.at(facts.lasts, np.maximum(0.0, np.maximum(low - returns, returns - high)))


def members(facts: Facts) -> Numbers:
    """At each group's first row, its trajectories."""
    groups, firsts = np.unique(facts.column("group"), return_index=True)
    counts = np.unique([group for group, _ in facts.keys], return_counts=True)[1]
    return facts.at(firsts[np.argsort(groups)], counts)


def _environments(facts: Facts) -> list[str]:
    """[N], environment of each trajectory."""
    return [str(name) for name in facts.column("environment")[facts.firsts]]


def of_usable(facts: Facts, values: NDArray[Any]) -> Numbers:
    """``values`` of trajectories that are not quarantined."""
    return np.where(facts.column("quarantined"), np.nan, values)


def return_errors(facts: Facts) -> Numbers:
    """Usable returns less the sum of the turn rewards, absolute."""
    values, owners = facts.entries("turn_rewards")
    sums = np.bincount(owners, weights=values, minlength=facts.rows)
    return of_usable(facts, np.abs(facts.column("return") - sums))


def largest_rewards(facts: Facts) -> Numbers:
    """Largest absolute reward of a usable trajectory's turns."""
    low, high, _ = facts.extremes("turn_rewards")
    return of_usable(facts, np.maximum(-low, high))


def kept_partly(facts: Facts) -> Numbers:
    """At each group's first row, 1 where some of its usable members are kept and others not."""
    usable = ~facts.column("quarantined")
    _, firsts, index = np.unique(facts.column("group"), return_index=True, return_inverse=True)
    able, kept = (np.bincount(index, weights=flags) for flags in (usable, facts.column("kept") & usable))
    return facts.at(firsts, (kept > 0) & (kept < able))


def unevenness(facts: Facts) -> NDArray[np.int64]:
    """Longest less shortest of the lists per token; log-probs and ratios may both be null instead."""
    lengths = {name: facts.lengths(name) for name in PER_TOKEN}
    unreached = np.logical_and.reduce(
        [facts.table[name].is_null().to_numpy() for name in ("learner_logprobs", "ratios")]
    )
    for name in ("learner_logprobs", "ratios"):
        lengths[name] = np.where(unreached, lengths["advantages"], lengths[name])
    return np.ptp(np.stack(list(lengths.values())), axis=0)


def out_of_bounds(facts: Facts) -> Numbers:
    """How far a finite metric is outside ``low`` to ``high``."""
    value = facts.column("value")
    outside = np.maximum(facts.column("low") - value, value - facts.column("high"))
    return np.where(np.isfinite(value), np.maximum(outside, 0.0), 0.0)

"""Batches hold exactly what was sampled, every trajectory once, within the token budget."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from builders import turn_row, turns_table
from hypothesis import given
from hypothesis import strategies as st

from starpo.learning.batching import micro_batches, mini_batches, sequences_of

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(rows=st.integers(0, 80), size=st.integers(1, 90), seed=st.integers(0, 99))
def test_mini_batches_are_a_partition_into_parts_of_one_size_and_a_rest(
    rows: int, size: int, seed: int
) -> None:
    parts = mini_batches(rows, size, np.random.default_rng(seed))
    assert sorted(np.concatenate([*parts, np.array([], int)]).tolist()) == list(range(rows))
    full, rest = divmod(rows, size)
    assert [len(part) for part in parts] == [size] * full + [rest] * (rest > 0)


@given(lengths=LENGTHS, budget=st.integers(1, 300), data=st.data())
def test_micro_batches_partition_the_rows_in_order_within_the_budget(
    lengths: list[int], budget: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True, min_size=1))
    rows, sizes = np.array(chosen), np.array(lengths)
    parts = list(micro_batches(rows, sizes, budget))
    assert [row for part in parts for row in part] == sorted(chosen)
    for part in parts:
        assert sizes[part].sum() <= budget or len(part) == 1
    for part, following in itertools.pairwise(parts):
        assert sizes[part].sum() + sizes[following[0]] > budget, "never needlessly small"


def test_no_rows_give_no_batches() -> None:
    assert list(micro_batches(np.array([], int), np.array([3]), 10)) == []


TOKENS = st.lists(st.integers(1, 500), min_size=1, max_size=6)


@st.composite
def trajectories(draw: st.DrawFn) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """(group, member) -> its turns."""
    keys = draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True, min_size=1, max_size=8)
    )
    result = {}
    for key in keys:
        turns = []
        for number in range(draw(st.integers(1, 4))):
            ids = draw(TOKENS)
            logprobs = [-float(draw(st.integers(0, 80))) / 16 for _ in ids]
            turns.append(
                turn_row(
                    group=key[0],
                    member=key[1],
                    turn=number,
                    context_ids=draw(TOKENS),
                    response_ids=ids,
                    response_logprobs=logprobs,
                    observation=draw(st.sampled_from(["a", "b", "c"])),
                )
            )
        result[key] = turns
    return result


@given(played=trajectories(), data=st.data())
def test_sequences_reproduce_ids_mask_log_probs_and_turn_rewards_exactly(
    played: dict[tuple[int, int], list[dict[str, Any]]], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(sorted(played)), min_size=1))
    rewards = {key: [float(10 * key[0] + turn) for turn in range(len(played[key]))] for key in kept}
    table = turns_table(*[row for turns in played.values() for row in turns])
    batch = sequences_of(table, rewards, kept)
    assert batch.keys == sorted(kept)
    assert batch.group_ids.tolist() == [group for group, _ in batch.keys]
    for row, key in enumerate(batch.keys):
        turns = played[key]
        expected_ids = [t for turn in turns for t in [*turn["context_ids"], *turn["response_ids"]]]
        expected_mask = [
            flag
            for turn in turns
            for flag in [False] * len(turn["context_ids"]) + [True] * len(turn["response_ids"])
        ]
        length = len(expected_ids)
        assert batch.lengths[row] == length
        assert batch.token_ids[row, :length].tolist() == expected_ids
        assert batch.mask[row, :length].tolist() == expected_mask
        assert not batch.token_ids[row, length:].any()
        assert not batch.mask[row, length:].any()
        sampled = batch.mask[row]
        assert batch.old_logp[row][sampled].tolist() == [
            p for turn in turns for p in turn["response_logprobs"]
        ]
        assert not batch.old_logp[row][~sampled].any()
        assert batch.turn_index[row][sampled].tolist() == [
            number for number, turn in enumerate(turns) for _ in turn["response_ids"]
        ]
        count = len(turns)
        assert batch.turn_mask[row].tolist() == [True] * count + [False] * (batch.turn_mask.shape[1] - count)
        assert batch.turn_rewards[row, :count].tolist() == rewards[key]
        assert batch.returns[row] == sum(rewards[key])


@given(played=trajectories())
def test_anchors_are_equal_exactly_where_turns_of_a_group_saw_the_same(
    played: dict[tuple[int, int], list[dict[str, Any]]],
) -> None:
    table = turns_table(*[row for turns in played.values() for row in turns])
    batch = sequences_of(table, {key: [0.0] * len(turns) for key, turns in played.items()}, set(played))
    seen: dict[int, tuple[int, str]] = {}
    for row, key in enumerate(batch.keys):
        for number, turn in enumerate(played[key]):
            state = (key[0], turn["observation"])
            assert seen.setdefault(int(batch.anchors[row, number]), state) == state
    assert len(set(seen.values())) == len(seen)


def test_a_trajectory_without_its_rewards_is_an_error() -> None:
    with pytest.raises(KeyError):
        sequences_of(turns_table(turn_row()), {}, {(0, 0)})

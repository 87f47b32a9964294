"""Trajectories of several chains: each seen by the network alone, all of them one row for estimators and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from builders import turn_row
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.masking import aggregate
from starpo.algorithms.registry import ESTIMATORS, advantage_estimator
from starpo.learning.batching import Sequences, chain_rows, pieces, sequences_of
from starpo.learning.models import Actor
from starpo.learning.prefix_tree import prefix_tree
from starpo.learning.response_mask import with_context_tokens
from starpo.store.schemas import WINDOWED_TURNS, WINDOWED_VERSION

VOCABULARY = 23
TOKENS = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=5)
Played = dict[tuple[int, int], list[dict[str, Any]]]


@st.composite
def windowed(draw: st.DrawFn) -> Played:
    """(group, member) -> its turns; a prompt goes on or begins anew."""
    keys = draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), unique=True, min_size=1, max_size=5)
    )
    played = {}
    for group, member in keys:
        turns = []
        for number in range(draw(st.integers(1, 4))):
            ids = draw(TOKENS)
            row = turn_row(
                group=group, member=member, turn=number, context_ids=draw(TOKENS), response_ids=ids
            )
            start = number > 0 and draw(st.booleans())
            extra = {"response_logprobs": [-0.25 * token for token in ids], "chain_start": start}
            turns.append(row | extra | {"schema_version": WINDOWED_VERSION})
        played[group, member] = turns
    return played


def batch_of(played: Played) -> Sequences:
    table = pa.Table.from_pylist([row for turns in played.values() for row in turns], schema=WINDOWED_TURNS)
    rewards = {key: [float(key[1]) + number for number in range(len(turns))] for key, turns in played.items()}
    return sequences_of(table, rewards, set(played))


def chains_of(turns: list[dict[str, Any]]) -> list[tuple[list[int], list[bool]]]:
    """Token ids and which are sampled, chain by chain."""
    chains: list[tuple[list[int], list[bool]]] = []
    for turn in turns:
        if turn["chain_start"] or not chains:
            chains.append(([], []))
        for name, sampled in (("context_ids", False), ("response_ids", True)):
            chains[-1][0].extend(turn[name])
            chains[-1][1].extend([sampled] * len(turn[name]))
    return chains


def tokens(ids: Tensor, mask: Tensor) -> list[int]:
    return ids[mask].tolist()


@examples(0.3)
@given(played=windowed())
def test_a_row_knows_where_its_chains_begin(played: Played) -> None:
    batch = batch_of(played)
    for row, key in enumerate(batch.keys):
        found = [
            (batch.token_ids[row, begin:end].tolist(), batch.mask[row, begin:end].tolist())
            for begin, end in batch.chains(row)
        ]
        assert found == chains_of(played[key])


@given(played=windowed(), budget=st.integers(1, 60), divide=st.booleans())
def test_every_sampled_token_is_in_one_piece_and_only_what_cannot_be_cut_exceeds_the_budget(
    played: Played, budget: int, divide: bool
) -> None:
    batch = batch_of(played)
    visits = torch.zeros_like(batch.mask, dtype=torch.int64)
    for piece in pieces(batch, np.arange(len(batch.keys)), budget, divide=divide):
        ids, mask = chain_rows(batch, piece)
        part = batch.mask[piece.rows, piece.columns]
        assert tokens(ids, mask) == tokens(batch.token_ids[piece.rows, piece.columns], part)
        visits[piece.rows, piece.columns] += part.long()
        chains = sum(
            piece.columns.start <= begin < piece.columns.stop
            for row in piece.rows
            for begin, _ in batch.chains(row)
        )
        assert len(ids) == chains
        size = sum(
            min(int(batch.lengths[row]), piece.columns.stop) - piece.columns.start for row in piece.rows
        )
        assert size <= budget or (chains == 1 if divide else len(piece.rows) == 1)
    assert visits.equal(batch.mask.long())


@examples(0.12)
@given(played=windowed(), budget=st.integers(1, 60))
def test_log_probs_are_those_of_the_chains_alone_and_nothing_before_a_chain_is_seen(
    played: Played, budget: int
) -> None:
    actor, model, batch = Actor(llama()), llama(), batch_of(played)
    logp = torch.zeros_like(batch.old_logp)
    with torch.no_grad():
        for piece in pieces(batch, np.arange(len(batch.keys)), budget, divide=True):
            part = batch.mask[piece.rows, piece.columns]
            logp[piece.rows, piece.columns], _ = actor(prefix_tree(*chain_rows(batch, piece)), part)
        for row, key in enumerate(batch.keys):
            alone = []
            for ids, sampled in chains_of(played[key]):
                log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
                alone += [float(log_p[at - 1, ids[at]]) for at, own in enumerate(sampled) if own]
            assert logp[row][batch.mask[row]].tolist() == pytest.approx(alone, abs=1e-4)


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, initializer_range=0.5, **sizes)).eval()


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@examples(0.05)
@given(played=windowed())
def test_advantages_depend_on_sampled_tokens_and_not_on_how_they_were_cut_into_chains(
    estimator: str, played: Played
) -> None:
    longer = {  # the prompts of a window repeat what came before
        key: [row | {"context_ids": [9] * 7 * row["chain_start"] + row["context_ids"]} for row in turns]
        for key, turns in played.items()
    }
    whole = {key: [row | {"chain_start": False} for row in turns] for key, turns in played.items()}
    found = []
    for each in (longer, whole):
        batch = batch_of(each)
        values = torch.zeros_like(batch.old_logp)
        values[batch.mask] = torch.linspace(-1, 1, int(batch.mask.sum()))
        estimate = advantage_estimator(estimator)(
            AdvantageBatch(
                mask=batch.mask,
                turn_index=batch.turn_index,
                turn_rewards=batch.turn_rewards,
                turn_mask=batch.turn_mask,
                group_ids=batch.group_ids,
                values=values,
                anchors=batch.anchors,
            )
        )
        found.append((estimate.advantages[batch.mask], estimate.returns[batch.mask]))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


@examples(0.12)
@given(played=windowed(), budget=st.integers(1, 60))
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_the_loss_of_the_pieces_is_that_of_the_whole_rows(mode: Any, played: Played, budget: int) -> None:
    batch = batch_of(played)
    loss = torch.randn(batch.mask.shape, generator=torch.Generator().manual_seed(0))
    totals: dict[str, Any] = {"total_tokens": int(batch.mask.sum()), "total_sequences": len(batch.keys)}
    parts = [
        aggregate(
            loss[piece.rows, piece.columns],
            batch.mask[piece.rows, piece.columns],
            mode,
            lengths=batch.mask.sum(1)[piece.rows],
            **totals,
        )
        for piece in pieces(batch, np.arange(len(batch.keys)), budget, divide=True)
    ]
    assert float(sum(parts)) == pytest.approx(float(aggregate(loss, batch.mask, mode, **totals)), abs=1e-5)


@examples(0.3)
@given(played=windowed())
def test_without_a_response_mask_every_token_but_a_chain_s_first_is_trained(played: Played) -> None:
    before = batch_of(played)
    batch = with_context_tokens(before)
    for row, key in enumerate(batch.keys):
        expected = [at > 0 for ids, _ in chains_of(played[key]) for at in range(len(ids))]
        assert batch.mask[row, : int(batch.lengths[row])].tolist() == expected
        assert not batch.mask[row, int(batch.lengths[row]) :].any()
        numbers = [
            turn["turn"] for turn in played[key] for _ in (*turn["context_ids"], *turn["response_ids"])
        ]
        assert batch.turn_index[row, : len(numbers)].tolist() == numbers

"""Trajectories computed as a tree: every prefix once, little padding, and the results of separate trajectories."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from starpo.learning import models
from starpo.learning.models import Actor, Critic
from starpo.learning.prefix_tree import MAX_PADDING, prefix_tree

VOCABULARY = 23
ROUNDING = 1e-5

Row = list[tuple[int, bool]]
"""Tokens with whether they were sampled."""

# A small alphabet, so that trajectories often begin alike.
ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=12), min_size=1, max_size=9
)


def padded(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Token ids and mask; a row's first token is context."""
    width = max(len(row) for row in rows)
    ids, mask = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width).bool()
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor([token for token, _ in row])
        mask[at, 1 : len(row)] = torch.tensor([sampled for _, sampled in row])[1:]
    return ids, mask


def ragged(*, rows: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of 3 groups that share 10 tokens each, then differ in content and length."""
    draw = np.random.default_rng(seed)
    prompts = draw.integers(0, VOCABULARY, (3, 10))
    chains: list[Row] = []
    for row in range(rows):
        rest = draw.integers(0, VOCABULARY, draw.integers(3, 60))
        flags = np.concatenate([np.zeros(10), draw.random(len(rest)) < 0.4, [1]]).astype(bool)
        tokens = [*prompts[row % 3], *rest, 1]
        chains.append([(int(token), bool(flag)) for token, flag in zip(tokens, flags, strict=True)])
    chains.append(chains[0])
    return padded(chains)


def llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            initializer_range=0.5,
            **settings | changes,
        )
    )


def separate(
    model: Any, ids: Tensor, mask: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, entropies and hidden states before each sampled token, one trajectory at a time."""
    logps, entropies, states = [], [], []
    for row, flags in zip(ids, mask, strict=True):
        out = model(row[None], output_hidden_states=True)
        log_p = (out.logits[0, :-1] / temperature).log_softmax(-1)
        chosen = flags[1:]
        logps.append(log_p.gather(1, row[1:, None])[:, 0][chosen])
        entropies.append(-(log_p.exp() * log_p).sum(-1)[chosen])
        states.append(out.hidden_states[-1][0, :-1][chosen])
    return torch.cat(logps), torch.cat(entropies), torch.cat(states)


@given(rows=ROWS)
def test_every_distinct_prefix_is_one_node_and_no_other_is_computed(rows: list[Row]) -> None:
    ids, mask = padded(rows)
    tree = prefix_tree(ids, mask)
    prefixes = set()
    for row, flags in zip(ids.tolist(), mask, strict=True):
        sampled = flags.nonzero()
        needed = int(sampled.max()) if len(sampled) else 1
        prefixes |= {tuple(row[:end]) for end in range(1, needed + 1)}
    assert tree.tokens.shape == tree.positions.shape == (1, len(prefixes))
    along = [
        (row, column) for bucket in tree.buckets for row in bucket.tolist() for column in range(len(row))
    ]
    found = []
    for node, place in enumerate(tree.first.tolist()):
        row, column = along[place]
        assert row[column] == node
        assert tree.positions[0, node] == column
        found.append(tuple(tree.tokens[0, row[: column + 1]].tolist()))
    assert len(set(found)) == len(found)
    assert set(found) == prefixes


@given(rows=ROWS)
def test_every_sampled_token_keeps_its_label_and_the_prefix_that_predicts_it(rows: list[Row]) -> None:
    ids, mask = padded(rows)
    tree = prefix_tree(ids, mask)
    path = {
        node: tree.tokens[0, row[: column + 1]].tolist()
        for bucket in tree.buckets
        for row in bucket.tolist()
        for column, node in enumerate(row)
        if tree.positions[0, node] == column
    }
    expected = [ids[row, : column + 1].tolist() for row, column in mask.nonzero().tolist()]
    assert [
        [*path[int(tree.before[place])], int(tree.labels[place])] for place in tree.place.tolist()
    ] == expected
    assert len(tree.labels) == len({tuple(chain) for chain in expected}), "alike ones are computed once"


@given(rows=ROWS)
def test_attention_computes_at_most_five_percent_of_padding(rows: list[Row]) -> None:
    tree = prefix_tree(*padded(rows))
    assert tree.chained <= tree.computed
    assert 1 - tree.chained / tree.computed <= MAX_PADDING + 1e-12


def test_trajectories_of_equal_length_are_one_bucket() -> None:
    ids = torch.arange(24).reshape(4, 6)
    mask = torch.ones(4, 6).bool()
    mask[:, 0] = False
    assert [bucket.shape for bucket in prefix_tree(ids, mask).buckets] == [(4, 5)]


def test_a_sampled_first_token_is_refused() -> None:
    with pytest.raises(ValueError, match="first token"):
        prefix_tree(torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3).bool())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_tree_gives_the_log_probs_and_entropies_of_separate_trajectories(temperature: float) -> None:
    ids, mask = ragged()
    model = llama()
    logp, entropy, _ = separate(model, ids, mask, temperature)
    actor = Actor(model)
    found = actor(prefix_tree(ids, mask), mask, temperature)
    for ours, theirs in zip(found, (logp, entropy), strict=True):
        torch.testing.assert_close(ours[mask], theirs, atol=ROUNDING, rtol=ROUNDING)
        assert not ours[~mask].any()


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


@pytest.mark.parametrize("architecture", ["Llama", "Qwen2", "tied Llama"])
def test_the_tree_gives_the_gradient_of_separate_trajectories(architecture: str) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    ids, mask = ragged(seed=1)
    if architecture == "Qwen2":
        torch.manual_seed(0)
        model: Any = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=VOCABULARY,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        )
    else:
        model = llama(tie_word_embeddings=architecture.startswith("tied"))
    weight = torch.randn(int(mask.sum()), generator=torch.Generator().manual_seed(3))
    logp, entropy, _ = separate(model, ids, mask)
    (weight * (logp + 0.1 * entropy)).sum().backward()
    theirs = gradients(model)
    actor = Actor(model)
    logp, entropy = actor(prefix_tree(ids, mask), mask)
    (weight * (logp + 0.1 * entropy)[mask]).sum().backward()
    ours = gradients(model)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-4, rtol=1e-4)


@examples(0.15)
@given(rows=ROWS, cuts=st.sets(st.integers(1, 8)))
def test_any_split_into_micro_batches_gives_the_same_gradient(rows: list[Row], cuts: set[int]) -> None:
    ids, mask = padded(rows)
    actor = Actor(llama(num_hidden_layers=1))
    # Log-probs and entropies weigh differently in every row, so that a mix-up of rows would show.
    weight = torch.arange(1.0, len(rows) + 1)[:, None]

    def gradient(parts: list[slice]) -> dict[str, Tensor]:
        for part in parts:
            logp, entropy = actor(prefix_tree(ids[part], mask[part]), mask[part])
            (weight[part] * (logp + 0.1 * entropy)).sum().backward()
        return gradients(actor)

    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    pieces = [slice(*edge) for edge in itertools.pairwise(edges)]
    whole, split = gradient([slice(None)]), gradient(pieces)
    for name in whole:
        torch.testing.assert_close(whole[name], split[name], atol=1e-4, rtol=1e-3)


def test_the_critic_values_each_state_as_in_separate_trajectories() -> None:
    ids, mask = ragged(seed=2)
    model = llama()
    _, _, states = separate(model, ids, mask)
    critic = Critic(model.get_decoder(), 32)
    torch.nn.init.normal_(critic.head.weight)
    expected = critic.head(states)[:, 0]
    torch.testing.assert_close(
        critic(prefix_tree(ids, mask), mask)[mask], expected, atol=ROUNDING, rtol=ROUNDING
    )


def test_no_trajectory_attends_to_another_or_to_what_follows() -> None:
    ids, mask = ragged()
    actor = Actor(llama())
    logp, _ = actor(prefix_tree(ids, mask), mask)
    changed = ids.clone()
    changed[5, 11:] = (changed[5, 11:] + 1) % VOCABULARY
    other, _ = actor(prefix_tree(changed, mask), mask)
    rest = torch.arange(len(ids)) != 5
    torch.testing.assert_close(other[rest], logp[rest], atol=ROUNDING, rtol=ROUNDING)
    assert (other[5] - logp[5]).abs().max() > 0.01


def test_logits_in_chunks_change_neither_result_nor_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = ragged()
    actor = Actor(llama())

    def run() -> tuple[list[Tensor], dict[str, Tensor]]:
        logp, entropy = actor(prefix_tree(ids, mask), mask)
        (logp + 0.1 * entropy).sum().backward()
        return [logp, entropy], gradients(actor)

    results, whole = run()
    monkeypatch.setattr(models, "MAX_LOGITS", 7 * VOCABULARY)
    chunked, parts = run()
    torch.testing.assert_close(chunked, results, atol=ROUNDING, rtol=ROUNDING)
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], atol=1e-4, rtol=1e-4)


def test_gradient_checkpointing_changes_nothing() -> None:
    ids, mask = ragged()
    plain, frugal = Actor(llama()), Actor(llama())
    frugal.model.gradient_checkpointing_enable()
    found = []
    for actor in (plain, frugal):
        actor.train()
        actor(prefix_tree(ids, mask), mask)[0].sum().backward()
        found.append(gradients(actor))
    for name in found[0]:
        torch.testing.assert_close(found[1][name], found[0][name])


def test_an_architecture_with_other_attention_is_computed_trajectory_by_trajectory() -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
        )
    )
    ids, mask = ragged()
    logp, _, _ = separate(model, ids, mask)
    found, _ = Actor(model)(prefix_tree(ids, mask), mask)
    torch.testing.assert_close(found[mask], logp, atol=ROUNDING, rtol=ROUNDING)

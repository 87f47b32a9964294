"""Training on context tokens: which tokens join the loss, and where their turn's reward falls."""

from __future__ import annotations

import torch
from builders import turn_row, turns_table

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.gae import place_turn_rewards
from starpo.algorithms.registry import advantage_estimator
from starpo.learning.batching import Sequences, sequences_of
from starpo.learning.response_mask import with_context_tokens


def two_trajectories() -> Sequences:
    """``c c s s c s`` and ``c s .  .  . .``."""
    table = turns_table(
        turn_row(member=0, turn=0, context_ids=[1, 2], response_ids=[3, 4], response_logprobs=[-1.0, -2.0]),
        turn_row(member=0, turn=1, context_ids=[5], response_ids=[6], response_logprobs=[-3.0]),
        turn_row(member=1, turn=0, context_ids=[1], response_ids=[7], response_logprobs=[-0.5]),
    )
    rewards = {(0, 0): [0.5, 1.0], (0, 1): [0.25]}
    return sequences_of(table, rewards, set(rewards))


def test_every_token_after_the_first_is_trained_and_no_padding():
    batch = with_context_tokens(two_trajectories())
    assert batch.mask.int().tolist() == [[0, 1, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0]]


def test_a_context_token_belongs_to_the_turn_it_leads_to_and_rewards_stay_where_they_were():
    before = two_trajectories()
    batch = with_context_tokens(before)
    assert batch.turn_index.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    placed = [place_turn_rewards(b.turn_rewards, b.turn_mask, b.turn_index, b.mask) for b in (before, batch)]
    assert torch.equal(*placed)
    assert placed[0].tolist() == [[0, 0, 0, 0.5, 0, 1], [0, 0.25, 0, 0, 0, 0]]


def test_the_batch_with_the_mask_is_left_as_it_was():
    before = two_trajectories()
    with_context_tokens(before)
    assert before.mask.int().tolist() == [[0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0]]
    assert torch.equal(before.turn_index, two_trajectories().turn_index)


def test_advantages_now_run_through_the_environment_s_tokens():
    def advantages(batch: Sequences) -> torch.Tensor:
        data = AdvantageBatch(
            mask=batch.mask,
            turn_index=batch.turn_index,
            turn_rewards=batch.turn_rewards,
            turn_mask=batch.turn_mask,
            group_ids=batch.group_ids,
            values=torch.zeros_like(batch.old_logp),
        )
        return advantage_estimator("gae", lam=0.5, whiten=False)(data).advantages

    with_mask, without = two_trajectories(), with_context_tokens(two_trajectories())
    assert advantages(with_mask)[0].tolist() == [0, 0, 0.5, 1.0, 0, 1]
    assert advantages(without)[0].tolist() == [0, 0.1875, 0.375, 0.75, 0.5, 1]

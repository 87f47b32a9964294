"""Every estimator and every loss learns a trivial two-turn task, through the same calls a trainer makes."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from starpo.algorithms.entropy import token_distribution
from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.kl import subtract_kl
from starpo.algorithms.masking import AggregationMode, aggregate
from starpo.algorithms.policy_loss import truncated_importance_weight
from starpo.algorithms.registry import ESTIMATORS, advantage_estimator, policy_loss_function

VOCABULARY, MEMBERS, ITERATIONS = 3, 32, 30
# column:   0        1       2            3        4
#           token    token   environment  token    padding
MASK = torch.tensor([True, True, False, True, False]).expand(MEMBERS, 5)
TURN = torch.tensor([0, 0, 9, 1, 9]).expand(MEMBERS, 5)
NAN = float("nan")
CHANCE = 2 / 3
"""Mean return of the uniform policy: three tokens, each right with probability 1/3, worth 0.5, 0.5 and 1; 2 at most."""


def reward_of(tokens: Tensor) -> Tensor:
    """Turn 0 pays 0.5 for each of its two tokens that is 1; turn 1 pays 1 for a 2."""
    first = 0.5 * (tokens[:, :2] == 1).sum(dim=1)
    return torch.stack([first, (tokens[:, 3] == 2).float()], dim=1)


def train(
    estimator: str,
    loss: str = "ppo",
    mode: str = "token-mean",
    *,
    kl_coefficient: float = 0.0,
    engine_temperature: float = 1.0,
    importance_cap: float | None = None,
    **loss_parameters: float,
) -> tuple[float, float]:
    """Mean return of the first and of the last iteration.

    ``kl_coefficient`` is that of a penalty to the uniform policy in the reward. An engine at another temperature
    than 1 samples from another distribution than the learner has.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(5, VOCABULARY, requires_grad=True)
    values = torch.zeros(5)
    optimizer = torch.optim.Adam([logits], lr=0.2)
    estimate = advantage_estimator(estimator)
    policy_loss = policy_loss_function(loss, **loss_parameters)
    means = []
    for _ in range(ITERATIONS):
        probabilities = (logits.detach() / engine_temperature).softmax(dim=1)
        tokens = torch.multinomial(probabilities, MEMBERS, replacement=True, generator=generator).T
        rewards = reward_of(tokens)
        means.append(float(rewards.sum(dim=1).mean()))
        old_logp = token_distribution(logits.expand(MEMBERS, 5, VOCABULARY), tokens, MASK).logp.detach()
        uniform = torch.full_like(old_logp, -math.log(VOCABULARY))
        advantages, returns = estimate(
            AdvantageBatch(
                mask=MASK,
                turn_index=TURN,
                turn_rewards=rewards,
                turn_mask=torch.ones(MEMBERS, 2, dtype=torch.bool),
                group_ids=torch.arange(MEMBERS) // 8,
                values=torch.where(MASK, values.expand(MEMBERS, 5), NAN),
                kl_rewards=subtract_kl(
                    torch.zeros_like(old_logp), old_logp, uniform, MASK, coefficient=kl_coefficient
                ),
                anchors=torch.stack([torch.zeros(MEMBERS), 1 + tokens[:, 0]], dim=1).long(),
            )
        )
        values = 0.5 * values + 0.5 * returns.mean(dim=0)
        if importance_cap is not None:
            engine_logp = (
                probabilities.log().expand(MEMBERS, 5, VOCABULARY).gather(2, tokens[..., None])[..., 0]
            )
            weight = truncated_importance_weight(old_logp, engine_logp, MASK, cap=importance_cap).weight
            advantages = weight * advantages
        for _ in range(2):
            logp = token_distribution(logits.expand(MEMBERS, 5, VOCABULARY), tokens, MASK).logp
            total = aggregate(policy_loss(logp, old_logp, advantages, MASK).loss, MASK, mode, length_norm=3)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    return means[0], means[-1]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_learns_with_ppo(name):
    first, last = train(name, "ppo")
    assert first < CHANCE + 0.3
    assert last > CHANCE + 0.9


@pytest.mark.parametrize("mode", get_args(AggregationMode))
def test_every_aggregation_learns(mode):
    assert train("dr_grpo", mode=mode)[1] > CHANCE + 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_strong_penalty_in_the_reward_holds_the_policy_at_chance_and_a_weak_one_lets_it_learn(name):
    assert train(name, kl_coefficient=0.05)[1] > CHANCE + 0.9
    assert train(name, kl_coefficient=10.0)[1] < CHANCE + 0.4


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_with_a_corrected_engine_that_is_off_every_estimator_learns(name):
    assert train(name, engine_temperature=1.5, importance_cap=2.0)[1] > CHANCE + 0.7


def test_gspo_learns_too():
    first, last = train("grpo", "gspo", "seq-mean-token-mean", clip_low=0.1, clip_high=0.1)
    assert last > first + 0.4


def test_equal_seeds_give_equal_runs():
    assert train("grpo", "ppo") == train("grpo", "ppo")

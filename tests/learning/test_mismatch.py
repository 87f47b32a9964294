"""The correction for an engine whose probabilities differ from the learner's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.algorithms.masking import aggregate
from starpo.algorithms.policy_loss import gspo_loss, ppo_loss, truncated_importance_weight
from starpo.learning.mismatch import corrected_advantages

NAN = float("nan")


def test_weights_by_hand_with_their_metrics_and_untouched_context():
    #                       sampled sampled context
    learner = torch.tensor([[-1.0, -2.0, -5.0]])
    engine = torch.tensor([[-2.0, -1.5, NAN]])
    sampled = torch.tensor([[True, True, False]])
    advantages, metrics = corrected_advantages(
        torch.tensor([[1.0, -2.0, 3.0]]), learner, engine, sampled, cap=2.0
    )
    assert advantages[0].tolist() == pytest.approx([2.0, -2.0 * math.exp(-0.5), 3.0])
    assert metrics == pytest.approx(
        {"importance_weight_mean": (2.0 + math.exp(-0.5)) / 2, "importance_truncated_share": 0.5}
    )


def test_equal_log_probs_change_nothing():
    logp, sampled = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3, 4).bool()
    advantages, metrics = corrected_advantages(logp, logp, logp, sampled, cap=2.0)
    assert torch.equal(advantages, logp)
    assert metrics == {"importance_weight_mean": 1.0, "importance_truncated_share": 0.0}


@pytest.mark.parametrize("loss", [ppo_loss, gspo_loss])
@given(
    seed=st.integers(0, 10**6), cap=st.sampled_from([0.5, 1.0, 2.0]), dual_clip=st.sampled_from([None, 3.0])
)
def test_weighted_advantages_give_the_weighted_loss_and_its_gradient(loss, seed, cap, dual_clip):
    generator = torch.Generator().manual_seed(seed)
    logp, old, engine, advantages = torch.randn(4, 3, 5, dtype=torch.float64, generator=generator)
    mask = torch.rand(3, 5, generator=generator) < 0.7
    bounds = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": dual_clip}
    weight = truncated_importance_weight(old, engine, mask, cap=cap).weight
    results = []
    for scaled in (False, True):
        leaf = logp.clone().requires_grad_()
        used = corrected_advantages(advantages, old, engine, mask, cap=cap)[0] if scaled else advantages
        per_token = loss(leaf, old, used, mask, **bounds).loss
        total = aggregate(per_token if scaled else weight * per_token, mask)
        total.backward()
        results.append((total.detach(), leaf.grad))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-12)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-12)

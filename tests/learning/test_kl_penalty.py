"""The KL penalty's place, its metrics and its adaptive coefficient, on made-up log-probs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from builders import algorithm
from torch import Tensor

from starpo.learning.kl_penalty import KLPenalty

NAN = float("nan")
# column             0    1    2      trajectory 0 sampled two tokens, trajectory 1 one
MASK = torch.tensor([[1, 1, 0], [0, 0, 1]]).bool()
LOGP = torch.tensor([[-1.0, -2.0, NAN], [NAN, NAN, -1.0]])
REFERENCE = torch.tensor([[-1.5, -1.0, NAN], [NAN, NAN, -3.0]])


def penalty(**changes: Any) -> KLPenalty:
    settings = {"kl_coefficient": 0.1, "kl_in": "reward", "kl_estimator": "k1"} | changes
    return KLPenalty(algorithm(**settings))


def closed(kl: KLPenalty, *, logp: Tensor = LOGP, adapt: bool = True) -> dict[str, float]:
    return kl.close_iteration(logp, REFERENCE, MASK, adapt=adapt)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [[0.5, -1.0, 0], [0, 0, 2.0]]),
        ("abs", [[0.5, 1.0, 0], [0, 0, 2.0]]),
        ("k2", [[0.125, 0.5, 0], [0, 0, 2.0]]),
        ("k3", [[math.exp(-0.5) - 0.5, math.e - 2, 0], [0, 0, math.exp(-2) + 1]]),
    ],
)
def test_in_the_reward_every_sampled_token_pays_for_its_divergence(estimator, expected):
    found = penalty(kl_estimator=estimator).rewards(LOGP, REFERENCE, MASK)
    assert torch.allclose(found, -0.1 * torch.tensor(expected), atol=1e-6)


def test_in_the_loss_it_takes_nothing_off_the_reward_and_the_other_way_round():
    kl = penalty(kl_in="loss", kl_estimator="k3")
    assert kl.in_loss
    assert kl.rewards(LOGP, REFERENCE, MASK) is None
    assert not penalty().in_loss


def test_without_a_coefficient_there_is_no_penalty_and_no_metric():
    kl = penalty(kl_coefficient=0.0)
    assert not kl.in_loss
    assert kl.rewards(LOGP, None, MASK) is None
    assert kl.close_iteration(LOGP, None, MASK, adapt=True) == {}


def test_the_measured_divergence_is_the_mean_over_trajectories_of_the_mean_over_tokens():
    metrics = closed(penalty())
    assert metrics == {"kl_coefficient": 0.1, "kl_to_base": pytest.approx(((0.5 - 1.0) / 2 + 2.0) / 2)}


def test_a_fixed_coefficient_stays_and_is_no_part_of_the_learner_state():
    kl = penalty()
    closed(kl)
    assert kl.coefficient == 0.1
    assert kl.counters() == {}
    kl.restore({"kl_coefficient": 7.0})
    assert kl.coefficient == 0.1


def adaptive(**changes: Any) -> KLPenalty:
    return penalty(**{"kl_target": 0.8, "kl_horizon": 20} | changes)


def test_an_adaptive_coefficient_moves_after_the_iteration_that_measured_it():
    kl = adaptive()
    # Measured 0.875, 9.4 % above the target; 2 trajectories of a horizon of 20.
    assert closed(kl)["kl_coefficient"] == 0.1
    assert kl.coefficient == pytest.approx(0.1 * (1 + (0.875 / 0.8 - 1) * 2 / 20))
    same = adaptive()
    closed(same, adapt=False)
    assert same.coefficient == 0.1, "the policy did not learn, so its distance says nothing"


def test_an_adaptive_coefficient_survives_the_manifest_exactly():
    uninterrupted, before = adaptive(), adaptive()
    for kl in (uninterrupted, before):
        closed(kl, logp=LOGP + 0.123)
    resumed = adaptive()
    resumed.restore(json.loads(json.dumps({"actor_steps": 3} | before.counters())))
    assert resumed.coefficient == uninterrupted.coefficient != 0.1
    assert closed(resumed) == closed(uninterrupted)
    assert resumed.counters() == uninterrupted.counters()


def test_a_state_without_a_coefficient_starts_at_the_configured_one():
    kl = adaptive()
    kl.restore({"actor_steps": 0, "critic_steps": 0})
    assert kl.coefficient == 0.1


def test_a_penalty_in_the_loss_adapts_too():
    kl = adaptive(kl_in="loss", kl_estimator="k2", kl_target=0.5)
    metrics = closed(kl)
    assert "kl_to_base" not in metrics, "the steps measure it"
    assert kl.coefficient > 0.1

"""What an update optimises: estimators, KL in the reward, the engine's correction, training on context tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import algorithm, learner_config, optimizer, store
from torch import Tensor

from starpo.algorithms.registry import ESTIMATORS
from starpo.learning.batching import Sequences
from starpo.learning.learner import Learner, UpdateResult
from starpo.learning.update_table import updates_to_table
from starpo.store.policies import Policy

pytestmark = pytest.mark.slow

ROUNDING = 1e-4
ADAPTIVE = {
    "estimator": "grpo",
    "kl_in": "reward",
    "kl_estimator": "k1",
    "kl_coefficient": 0.5,
    "kl_target": 0.001,
    "kl_horizon": 64,
}


def learner(policy: Policy, *, algo: dict[str, Any] | None = None, **changes: Any) -> Learner:
    return Learner(policy, learner_config(**changes), algorithm(**(algo or {})), temperature=1.0)


def update(actor: Learner, batch: Sequences, *, iteration: int = 0) -> UpdateResult:
    return actor.update(batch, seed=0, iteration=iteration)


def mean_gain(actor: Learner, batch: Sequences) -> Tensor:
    """Mean log-prob of each trajectory's sampled tokens under the trained policy, less the engine's."""
    chains = [batch.token_ids[row, : batch.lengths[row]].tolist() for row in range(len(batch.keys))]
    gains = []
    for row, scores in enumerate(actor.score(chains)):
        sampled = batch.mask[row, 1 : batch.lengths[row]]
        gains.append((torch.tensor(scores) - batch.old_logp[row, 1 : batch.lengths[row]])[sampled].mean())
    return torch.stack(gains)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_with_every_estimator_rewarded_trajectories_become_likelier_than_the_others(
    tiny_policy: Policy, batch: Sequences, estimator: str
) -> None:
    actor = learner(tiny_policy, algo={"estimator": estimator}, rows_per_step=16, epochs=4)
    update(actor, batch)
    gain, won = mean_gain(actor, batch), batch.returns > 0
    assert gain[won].mean() > gain[~won].mean() + 1e-3


def test_a_penalty_in_the_reward_enters_the_advantages_and_not_the_loss(
    tiny_policy: Policy, batch: Sequences
) -> None:
    in_reward = {"estimator": "rloo", "kl_in": "reward", "kl_estimator": "k1", "kl_coefficient": 0.5}
    plain, actor = learner(tiny_policy, algo={"estimator": "rloo"}), learner(tiny_policy, algo=in_reward)
    first = update(actor, batch)
    # Engine and learner differ by rounding: at the first policy there is nothing to pay.
    assert first.metrics["kl_to_base"] == pytest.approx(0, abs=ROUNDING)
    assert first.metrics["kl_coefficient"] == 0.5
    expected = update(plain, batch)
    assert torch.allclose(first.advantages, expected.advantages, atol=1e-2)
    assert first.metrics["policy_loss"] == pytest.approx(expected.metrics["policy_loss"], abs=1e-2)
    # Against another first policy every token pays, and a trajectory's advantage falls by what it paid.
    shifted = dataclasses.replace(batch, old_logp=torch.where(batch.mask, batch.old_logp + 0.1, 0.0))
    paid = update(learner(tiny_policy, algo=in_reward), shifted)
    tokens = batch.mask.sum(1).float()
    others = (tokens.reshape(4, 4).sum(1, keepdim=True) - tokens.reshape(4, 4)).reshape(-1) / 3
    change = (paid.advantages - expected.advantages).sum(1) / tokens
    assert torch.allclose(change, -0.5 * 0.1 * (tokens - others), atol=1e-2)
    assert paid.metrics["kl_to_base"] == pytest.approx(0.1, abs=ROUNDING)


def test_an_adaptive_coefficient_goes_on_after_a_resume_as_if_never_stopped(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    uninterrupted = learner(tiny_policy, algo=ADAPTIVE, actor=optimizer(learning_rate=1e-2))
    update(uninterrupted, batch)
    store(tmp_path, model_files=tiny_policy.directory, weights=tiny_policy.tensors("weights"))
    stored = store(
        tmp_path,
        model_files=tiny_policy.directory,
        weights=uninterrupted.weights(),
        iteration=1,
        status="trained",
        counters=uninterrupted.counters() | {"skipped": 0},
        parts=uninterrupted.parts(),
    )
    resumed = learner(stored, algo=ADAPTIVE, actor=optimizer(learning_rate=1e-2))
    assert resumed.counters() == uninterrupted.counters()
    assert resumed.counters()["kl_coefficient"] == pytest.approx(0.5 * (1 - 0.2 * 16 / 64)), "no distance yet"
    expected, found = (update(actor, batch, iteration=1) for actor in (uninterrupted, resumed))
    assert expected.metrics == found.metrics
    assert resumed.counters() == uninterrupted.counters()


def test_an_engine_that_is_off_is_corrected_up_to_the_cap(tiny_policy: Policy, batch: Sequences) -> None:
    # The engine thought every token e times less likely than the learner does, every fourth row right.
    off = torch.arange(len(batch.keys)) % 4 != 0
    wrong = dataclasses.replace(batch, old_logp=batch.old_logp - (batch.mask & off[:, None]).float())
    settings = {"old_logprobs": "recompute", "rows_per_step": 16}
    corrected = learner(tiny_policy, algo={"estimator": "grpo", "importance_cap": 2.0}, **settings)
    result = update(corrected, wrong)
    share = float(batch.mask[off].sum() / batch.mask.sum())
    assert result.metrics["importance_truncated_share"] == pytest.approx(share)
    assert result.metrics["importance_weight_mean"] == pytest.approx(1 + share, abs=ROUNDING)
    plain = update(learner(tiny_policy, algo={"estimator": "grpo"}, **settings), wrong)
    assert torch.equal(result.advantages, plain.advantages), "the table holds them as estimated"
    weight = torch.where(off, 2.0, 1.0)[:, None]
    expected = -float((weight * plain.advantages).sum() / batch.mask.sum())
    assert result.metrics["policy_loss"] == pytest.approx(expected, abs=ROUNDING)


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_without_the_response_mask_every_token_after_the_first_is_trained(
    tiny_policy: Policy, batch: Sequences, estimator: str
) -> None:
    algo = {"estimator": estimator, "response_mask": False}
    result = update(learner(tiny_policy, algo=algo, old_logprobs="recompute", rows_per_step=16), batch)
    assert result.metrics["trained_tokens"] == batch.lengths.sum() - len(batch.keys)
    assert result.metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert result.metrics["logprob_difference_max"] < ROUNDING, "compared where the engine sampled"
    context = ~batch.mask & (torch.arange(batch.mask.shape[1]) < torch.from_numpy(batch.lengths)[:, None])
    context[:, 0] = False
    assert torch.count_nonzero(result.advantages[context]) > 0
    assert torch.count_nonzero(result.advantages[:, 0]) == 0
    for row in updates_to_table(batch, result, tiny_policy).to_pylist():
        at = batch.keys.index((row["group"], row["member"]))
        assert len(row["advantages"]) == int((batch.mask[at] & (batch.turn_index[at] == row["turn"])).sum())

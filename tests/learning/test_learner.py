"""One StarPO update on a real rollout of a tiny policy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from builders import (
    agent,
    algorithm,
    differences,
    learner_config,
    optimizer,
    perturbed,
    plan,
    store,
    template_of,
)
from torch import Tensor

from starpo.learning import models
from starpo.learning.batching import Sequences, sequences_of
from starpo.learning.deepspeed_engine import TrainedModule
from starpo.learning.host import LearnerHost
from starpo.learning.learner import Learner, UpdateResult
from starpo.learning.update_table import updates_to_table
from starpo.rollout.episodes import play
from starpo.rollout.transformers_engine import TransformersEngine
from starpo.store.policies import Policy
from starpo.store.trajectory_table import trajectories_to_table

pytestmark = pytest.mark.slow

ROUNDING = 1e-4


def learner(policy: Policy, *, temperature: float = 1.0, algo: Any = None, **changes: Any) -> Learner:
    return Learner(policy, learner_config(**changes), algo or algorithm(), temperature=temperature)


def update(actor: Learner, batch: Sequences, *, iteration: int = 0) -> UpdateResult:
    return actor.update(batch, seed=0, iteration=iteration)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def saved(actor: Learner, policy: Policy, directory: Path, *, iteration: int = 1) -> Policy:
    """The learner's state as the update node stores it, beside the run's first policy."""
    if not (directory / "tiny" / "policy_0000").exists():
        store(directory, model_files=policy.directory, weights=policy.tensors("weights"))
    return store(
        directory,
        model_files=policy.directory,
        weights=actor.weights(),
        iteration=iteration,
        status="trained",
        counters=actor.counters() | {"skipped": 0},
        parts=actor.parts(),
    )


def test_an_update_changes_both_networks_and_measures_finite_numbers(
    tiny_policy: Policy, batch: Sequences
) -> None:
    actor = learner(tiny_policy, epochs=2)
    before, critic = actor.weights(), actor.parts()["critic"]
    result = update(actor, batch)
    assert all(math.isfinite(value) for value in result.metrics.values()), result.metrics
    assert not same(actor.weights(), before)
    assert not same(actor.parts()["critic"], critic)
    assert actor.counters() == {"actor_steps": 4, "critic_steps": 4}
    assert result.metrics["trained_trajectories"] == 16
    assert result.metrics["trained_tokens"] == int(batch.mask.sum())


def test_log_probs_of_engine_and_learner_agree_where_the_weights_do(
    tiny_policy: Policy, batch: Sequences
) -> None:
    result = update(learner(tiny_policy, rows_per_step=16), batch)
    assert result.metrics["logprob_difference_max"] < ROUNDING
    assert float((result.learner_logp - batch.old_logp).abs().max()) < ROUNDING
    assert result.metrics["approx_kl"] == pytest.approx(0, abs=1e-6), "before the first step"


def test_the_temperature_of_the_rollout_enters_the_learner_s_log_probs(
    tiny_policy: Policy, engine: TransformersEngine
) -> None:
    trajectories = play(engine, plan(temperature=1.7), agent(), template_of(tiny_policy))
    table = trajectories_to_table(trajectories, policy_step=0, temperature=1.7, top_p=1.0)
    keys = set(zip(table["group"].to_pylist(), table["member"].to_pylist(), strict=True))
    counts = {key: [0.0] * len(trajectories[key[0] * 2 + key[1]].turns) for key in keys}
    hot = sequences_of(table, counts, keys)
    assert update(learner(tiny_policy, temperature=1.7), hot).metrics["logprob_difference_max"] < ROUNDING
    assert update(learner(tiny_policy, temperature=1.0), hot).metrics["logprob_difference_max"] > 0.01


def test_rewarded_trajectories_become_likelier_than_the_others(tiny_policy: Policy, batch: Sequences) -> None:
    actor = learner(tiny_policy, algo=algorithm(estimator="grpo"), rows_per_step=16, epochs=4)
    update(actor, batch)
    again = update(learner_at(actor, tiny_policy), batch)
    gain = ((again.learner_logp - batch.old_logp) * batch.mask).sum(1) / batch.mask.sum(1)
    won = batch.returns > 0
    assert gain[won].mean() > gain[~won].mean() + 1e-3


def learner_at(actor: Learner, policy: Policy) -> Learner:
    """A learner with the weights of ``actor`` that measures before it steps."""
    other = learner(policy, algo=algorithm(estimator="grpo"), rows_per_step=16)
    other._actor.restore({f"model.{name}": t for name, t in actor.weights().items()}, None, 0)
    return other


def test_micro_batches_of_any_size_give_the_same_update(tiny_policy: Policy, batch: Sequences) -> None:
    whole, small = learner(tiny_policy), learner(tiny_policy, micro_batch_tokens=200)
    update(whole, batch)
    update(small, batch)
    largest = max(float((whole.weights()[n] - small.weights()[n]).abs().max()) for n in whole.weights())
    assert largest < 1e-5


def test_the_same_update_twice_is_equal_to_the_bit(tiny_policy: Policy, batch: Sequences) -> None:
    one, other = learner(tiny_policy), learner(tiny_policy)
    assert update(one, batch).metrics == update(other, batch).metrics
    assert same(one.weights(), other.weights())


def test_target_kl_ends_the_actor_s_passes_and_not_the_critic_s(
    tiny_policy: Policy, batch: Sequences
) -> None:
    strict = learner(tiny_policy, epochs=3, target_kl=1e-12, actor=optimizer(learning_rate=1e-2))
    result = update(strict, batch)
    assert result.metrics["early_stop"] == 1.0
    assert strict.counters()["critic_steps"] == 6
    assert strict.counters()["actor_steps"] == 1, "the first step is always taken, the offending one never"
    lenient = learner(tiny_policy, epochs=3, target_kl=1e6)
    assert update(lenient, batch).metrics["early_stop"] == 0.0
    assert lenient.counters()["actor_steps"] == 6


def test_a_trajectory_that_no_pass_reached_has_no_log_probs_and_no_ratios(
    tiny_policy: Policy, batch: Sequences
) -> None:
    strict = learner(tiny_policy, target_kl=1e-12, rows_per_step=4, actor=optimizer(learning_rate=1e-2))
    result = update(strict, batch)
    reached = ~result.learner_logp.isnan().any(1)
    assert int(reached.sum()) == 4
    assert float((result.learner_logp - batch.old_logp)[reached].abs().max()) < ROUNDING
    rows = updates_to_table(batch, result, tiny_policy).to_pylist()
    for row in rows:
        number = batch.keys.index((row["group"], row["member"]))
        assert (row["ratios"] is None) == (row["learner_logprobs"] is None) == (not reached[number])
        assert len(row["advantages"]) == len(row["values"]) > 0
    assert any(row["ratios"] is None for row in rows)


def test_what_is_left_over_makes_a_step_that_weighs_as_much_as_its_share(
    tiny_policy: Policy, batch: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of the steps 6, 6 and 4 add up to those of one step of 16, a trajectory weighing 1/6 and 1/16."""
    algo = algorithm(estimator="grpo", aggregation="seq-mean-token-sum")

    def gradients(rows: int) -> list[dict[str, Tensor]]:
        taken = []

        def instead(module: TrainedModule) -> tuple[float, float]:
            named = module.engine.module.named_parameters()
            taken.append({name: p.grad.clone() for name, p in named if p.grad is not None})
            module.engine.optimizer.zero_grad()
            return 0.0, 0.0

        with monkeypatch.context() as patch:
            patch.setattr(TrainedModule, "step", instead)
            update(learner(tiny_policy, algo=algo, rows_per_step=rows), batch)
        return taken

    (whole,), steps = gradients(16), gradients(6)
    assert len(steps) == 3
    for name, expected in whole.items():
        found = sum(step[name] for step in steps) * 6 / 16
        assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("temperature", "top_p", "old"),
    [
        (1.0, 1.0, "rollout"),
        (0.5, 1.0, "rollout"),
        (2.0, 1.0, "rollout"),
        (0.7, 1.0, "recompute"),
        (1.0, 0.8, "recompute"),
        (1.3, 0.5, "recompute"),
    ],
)
def test_before_the_first_step_every_ratio_is_one(
    tiny_policy: Policy, engine: TransformersEngine, temperature: float, top_p: float, old: str
) -> None:
    """For every accepted way to sample; the others are refused with the parameters."""
    trajectories = play(engine, plan(temperature=temperature, top_p=top_p), agent(), template_of(tiny_policy))
    table = trajectories_to_table(trajectories, policy_step=0, temperature=temperature, top_p=top_p)
    keys = list(zip(table["group"].to_pylist(), table["member"].to_pylist(), strict=True))
    rewards = {key: [0.0] * keys.count(key) for key in keys}
    rows = sequences_of(table, rewards, set(keys))
    actor = learner(
        tiny_policy,
        temperature=temperature,
        old_logprobs=old,
        algo=algorithm(estimator="grpo"),
        rows_per_step=99,
    )
    ratios: list[Tensor] = []
    loss = actor._policy_loss

    def watched(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Any:
        ratios.append((logp.detach() - old_logp)[mask].exp())
        return loss(logp, old_logp, advantages, mask)

    actor._policy_loss = watched
    update(actor, rows)
    assert float((torch.cat(ratios) - 1).abs().max()) < ROUNDING


def test_critic_warm_up_leaves_the_actor_untouched(tiny_policy: Policy, batch: Sequences) -> None:
    actor = learner(tiny_policy, critic_warmup=2)
    before, critic = actor.weights(), actor.parts()["critic"]
    for iteration in range(2):
        result = update(actor, batch, iteration=iteration)
        assert result.metrics["logprob_difference_max"] < ROUNDING
    assert same(actor.weights(), before)
    assert actor.counters() == {"actor_steps": 0, "critic_steps": 4}
    assert not same(actor.parts()["critic"], critic)
    update(actor, batch, iteration=2)
    assert not same(actor.weights(), before)


def test_a_kl_penalty_holds_the_actor_near_its_first_policy(tiny_policy: Policy, batch: Sequences) -> None:
    def distance(coefficient: float) -> float:
        actor = learner(
            tiny_policy,
            algo=algorithm(estimator="grpo", kl_coefficient=coefficient),
            epochs=8,
            actor=optimizer(learning_rate=3e-3),
        )
        update(actor, batch)
        measured = update(actor, batch, iteration=1)
        return measured.metrics["kl_to_base"]

    assert distance(10.0) < 0.5 * distance(1e-9)
    assert "kl_to_base" not in update(learner(tiny_policy), batch).metrics


def test_after_a_resume_the_kl_penalty_still_refers_to_the_first_policy(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    algo = algorithm(estimator="grpo", kl_coefficient=0.1)
    uninterrupted = learner(tiny_policy, algo=algo)
    update(uninterrupted, batch)
    resumed = learner(saved(uninterrupted, tiny_policy, tmp_path), algo=algo)
    expected, found = (update(actor, batch, iteration=1) for actor in (uninterrupted, resumed))
    assert expected.metrics["kl_to_base"] > 1e-6
    assert found.metrics == expected.metrics
    assert same(uninterrupted.weights(), resumed.weights())


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "gigpo", "reinforce_plus_plus"])
def test_estimators_without_a_critic_build_none(
    tiny_policy: Policy, batch: Sequences, estimator: str
) -> None:
    actor = learner(tiny_policy, algo=algorithm(estimator=estimator))
    result = update(actor, batch)
    assert sorted(actor.parts()) == ["actor_moments"]
    assert actor.counters()["critic_steps"] == 0
    assert not result.values.any()
    assert "value_loss" not in result.metrics


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stored_learner_goes_on_as_if_it_never_stopped(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path, stage: int
) -> None:
    original = learner(tiny_policy, zero_stage=stage)
    update(original, batch)
    resumed = learner(saved(original, tiny_policy, tmp_path), zero_stage=stage)
    assert resumed.counters() == original.counters()
    one, other = (update(actor, batch, iteration=1) for actor in (original, resumed))
    assert one.metrics == other.metrics
    assert same(original.weights(), resumed.weights())
    assert all(same(original.parts()[part], resumed.parts()[part]) for part in original.parts())


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_zero_stage_learns_the_same(tiny_policy: Policy, batch: Sequences, stage: int) -> None:
    plain, sharded = learner(tiny_policy), learner(tiny_policy, zero_stage=stage)
    update(plain, batch)
    update(sharded, batch)
    largest = max(float((plain.weights()[n] - sharded.weights()[n]).abs().max()) for n in plain.weights())
    assert largest < 1e-5


def test_the_learner_scores_as_the_engine_does(
    tiny_policy: Policy, engine: TransformersEngine, batch: Sequences
) -> None:
    chains = [batch.token_ids[row, : batch.lengths[row]].tolist() for row in range(4)]
    assert differences(learner(tiny_policy).score(chains), engine.score(chains)) < ROUNDING


@pytest.mark.parametrize(("rows_per_step", "passes"), [(16, 1), (8, 3)])
def test_the_first_step_s_own_log_probs_spare_its_recomputation(
    tiny_policy: Policy,
    batch: Sequences,
    monkeypatch: pytest.MonkeyPatch,
    rows_per_step: int,
    passes: int,
) -> None:
    sparing = learner(
        tiny_policy, old_logprobs="recompute", rows_per_step=rows_per_step, algo=algorithm(estimator="grpo")
    )
    forward = []
    sparing._actor.engine.module.register_forward_hook(lambda *_: forward.append(1))
    found = update(sparing, batch)
    assert len(forward) == passes, "one for each step, and one for the rows of later steps"
    monkeypatch.setattr(Learner, "_first_step_recomputes", False)
    thorough = learner(
        tiny_policy, old_logprobs="recompute", rows_per_step=rows_per_step, algo=algorithm(estimator="grpo")
    )
    expected = update(thorough, batch)
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-6)
    largest = max(
        float((sparing.weights()[n] - thorough.weights()[n]).abs().max()) for n in sparing.weights()
    )
    assert largest < 1e-5


@pytest.mark.parametrize("stage", [0, 3])
def test_logits_in_chunks_give_the_same_update(
    tiny_policy: Policy, batch: Sequences, monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    whole = learner(tiny_policy)
    update(whole, batch)
    monkeypatch.setattr(models, "MAX_LOGITS", 5000)
    chunked = learner(tiny_policy, zero_stage=stage)
    update(chunked, batch)
    largest = max(float((whole.weights()[n] - chunked.weights()[n]).abs().max()) for n in whole.weights())
    assert largest < 1e-5


def test_padding_is_at_most_five_percent_and_shared_beginnings_are_computed_once(
    tiny_policy: Policy, batch: Sequences
) -> None:
    metrics = update(learner(tiny_policy, rows_per_step=16), batch).metrics
    assert metrics["padding_share"] <= 0.05
    prefixes = {
        tuple(row[:end].tolist())
        for row, flags in zip(batch.token_ids, batch.mask, strict=True)
        for end in range(1, int(flags.nonzero().max()) + 1)
    }
    needed = sum(int(flags.nonzero().max()) for flags in batch.mask)
    assert metrics["shared_token_share"] == pytest.approx(1 - len(prefixes) / needed)
    assert metrics["shared_token_share"] > 0.2, "all begin with the same system message"


def test_recomputed_old_log_probs_are_the_learner_s_own(tiny_policy: Policy, batch: Sequences) -> None:
    result = update(learner(tiny_policy, old_logprobs="recompute", rows_per_step=16), batch)
    assert result.metrics["approx_kl"] == pytest.approx(0, abs=1e-7)


def test_the_host_restores_the_asked_policy_and_leaves_the_present_one_alone(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    host = LearnerHost()
    actor = host.at(tiny_policy, learner_config(), algorithm(), temperature=1.0)
    update(actor, batch)
    after = saved(actor, tiny_policy, tmp_path)
    actor._holds = after.identity
    moved = actor.weights()
    assert host.at(after, learner_config(), algorithm(), temperature=1.0) is actor
    assert same(actor.weights(), moved)
    host.at(tiny_policy, learner_config(), algorithm(), temperature=1.0)
    assert same(actor.weights(), tiny_policy.tensors("weights") or {})
    assert actor.counters()["actor_steps"] == 0
    host.close()


def test_the_table_of_updates_holds_each_turn_s_tokens(
    tiny_policy: Policy, batch: Sequences, turns: pa.Table
) -> None:
    result = update(learner(tiny_policy), batch)
    rows = updates_to_table(batch, result, tiny_policy).to_pylist()
    assert [(row["group"], row["member"], row["turn"]) for row in rows] == list(
        zip(*(turns[name].to_pylist() for name in ("group", "member", "turn")), strict=True)
    )
    for row, turn in zip(rows, turns.to_pylist(), strict=True):
        count = len(turn["response_ids"])
        for name in ("advantages", "values", "learner_logprobs", "ratios"):
            assert len(row[name]) == count
        ratios = [
            math.exp(new - old)
            for new, old in zip(row["learner_logprobs"], turn["response_logprobs"], strict=True)
        ]
        assert row["ratios"] == pytest.approx(ratios, rel=1e-4)


def test_another_policy_s_weights_show_as_a_mismatch(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    weights = perturbed(tiny_policy.tensors("weights") or {}, seed=3)
    other = store(tmp_path, model_files=tiny_policy.directory, weights=weights, run="other")
    assert update(learner(other), batch).metrics["logprob_difference_max"] > 0.01

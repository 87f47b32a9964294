"""LoRA: only adapters are trained, merging is exact and never accumulates, and their state is a learner state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import algorithm, engine_config, learner_config, optimizer, sealed, store
from torch import Tensor

from starpo.config.learner import LoraConfig
from starpo.config.run import RunConfig
from starpo.errors import UserError
from starpo.learning import lora
from starpo.learning.batching import Sequences
from starpo.learning.learner import Learner, UpdateResult
from starpo.pipelines.base_policy.nodes import import_policy
from starpo.rollout.sync import SyncError, prove_sync
from starpo.rollout.transformers_engine import TransformersEngine
from starpo.store.policies import Policy
from starpo.store.policy_state import BASE, MODEL, PolicyState

pytestmark = pytest.mark.slow

RANK = LoraConfig(rank=4, alpha=8)
#: Rounding of float32 log-probs between the adapted and the merged form of the same weights.
ROUNDING = 1e-4


@pytest.fixture
def first(tiny_policy: Policy, tmp_path: Path) -> Policy:
    """The first policy of a run in a folder of its own."""
    return store(tmp_path, model_files=tiny_policy.directory, weights=tiny_policy.tensors("weights"))


def learner(policy: Policy, *, algo: Any = None, **changes: Any) -> Learner:
    settings = {"lora": RANK, "actor": optimizer(learning_rate=1e-2)} | changes
    return Learner(policy, learner_config(**settings), algo or algorithm(), temperature=1.0)


def update(actor: Learner, batch: Sequences, *, iteration: int = 0) -> UpdateResult:
    return actor.update(batch, seed=0, iteration=iteration)


def state(actor: Learner, policy: Policy, *, iteration: int = 1, run: str = "tiny") -> PolicyState:
    """What the update node hands to the dataset."""
    return PolicyState(
        run=run,
        iteration=iteration,
        policy_step=iteration,
        status="trained",
        counters=actor.counters() | {"skipped": 0},
        model_files=policy.directory,
        harness={},
        weights=actor.weights(),
        weights_in=f"policy_{iteration:04d}",
        parts=actor.parts(),
        adapter=actor.adapter(),
    )


def saved(actor: Learner, policy: Policy, *, iteration: int = 1) -> Policy:
    directory = policy.directory.parent / f"policy_{iteration:04d}"
    state(actor, policy, iteration=iteration).write(directory)
    return Policy.open(directory)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def everything(actor: Learner) -> dict[str, Tensor]:
    parts = actor.parts() | {"weights": actor.weights()}
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def probe(batch: Sequences) -> list[list[int]]:
    return [batch.token_ids[row, : batch.lengths[row]].tolist() for row in range(4)]


def test_adapters_and_the_critic_s_head_are_all_that_is_trained(first: Policy, batch: Sequences) -> None:
    actor = learner(first)
    update(actor, batch)
    parts = actor.parts()
    assert all(".lora_" in name for name in parts["actor_moments"])
    heads = {name for name in parts["critic"] if ".lora_" not in name}
    assert heads == {"head.weight", "head.bias"}
    base, merged = first.tensors("weights") or {}, actor.weights()
    untouched = [name for name in base if "_proj" not in name]
    assert untouched and all(torch.equal(base[name], merged[name]) for name in untouched)
    assert all(not torch.equal(base[name], merged[name]) for name in base if "_proj" in name)


def test_an_untrained_adapter_is_the_base_to_the_bit(first: Policy) -> None:
    assert same(learner(first).weights(), first.tensors("weights") or {})


def test_the_merged_model_computes_what_the_adapted_one_does(first: Policy, batch: Sequences) -> None:
    actor = learner(first)
    update(actor, batch)
    after = saved(actor, first)
    engine = TransformersEngine(after.model_directory, engine_config(), stop_ids=(), identity=after.identity)
    assert prove_sync(engine, actor, probe(batch), ROUNDING) < ROUNDING


def test_peft_loads_the_stored_adapter_onto_its_base(first: Policy, batch: Sequences) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    actor = learner(first)
    update(actor, batch)
    after = saved(actor, first)
    ids = torch.tensor([probe(batch)[0]])
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(after.directory)(ids).logits
        adapted = AutoPeftModelForCausalLM.from_pretrained(after.directory / "adapter")(ids).logits
    torch.testing.assert_close(adapted, merged, atol=1e-4, rtol=1e-4)


def test_merging_again_and_again_does_not_drift(first: Policy, batch: Sequences) -> None:
    actor = learner(first)
    for iteration in range(3):
        update(actor, batch, iteration=iteration)
        assert same(actor.weights(), actor.weights())
    adapter = actor.adapter()
    assert adapter is not None
    base = first.tensors("weights") or {}
    name = "model.layers.0.self_attn.q_proj"
    up, down = (adapter.tensors[f"base_model.model.{name}.lora_{side}.weight"] for side in "BA")
    assert torch.equal(actor.weights()[f"{name}.weight"], base[f"{name}.weight"] + 2.0 * (up @ down))


@pytest.mark.parametrize("mistake", ["adapter left out", "scaled wrongly", "of the update before"])
def test_a_wrong_merge_is_caught_by_the_sync_proof(
    first: Policy, batch: Sequences, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = learner(first)
    update(actor, batch)
    stale = actor.weights()
    update(actor, batch, iteration=1)
    engine = TransformersEngine(first.model_directory, engine_config(), stop_ids=(), identity="tiny/0")
    engine.load(actor.weights().items(), "tiny/2")
    prove_sync(engine, actor, probe(batch), 1e-3)
    right = lora.merge
    wrong = {
        "adapter left out": lambda base, adapter, config: right(base, {}, config),
        "scaled wrongly": lambda base, adapter, config: right(base, adapter, LoraConfig(rank=4, alpha=4)),
        "of the update before": lambda base, adapter, config: stale,
    }[mistake]
    monkeypatch.setattr(lora, "merge", wrong)
    engine.load(actor.weights().items(), "tiny/2")
    with pytest.raises(SyncError, match="does not serve the new weights"):
        prove_sync(engine, actor, probe(batch), 1e-3)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stored_adapter_goes_on_as_if_it_never_stopped(first: Policy, batch: Sequences, stage: int) -> None:
    original = learner(first, zero_stage=stage)
    update(original, batch)
    resumed = learner(saved(original, first), zero_stage=stage)
    assert same(everything(resumed), everything(original))
    one, other = (update(actor, batch, iteration=1) for actor in (original, resumed))
    assert one.metrics == other.metrics
    assert same(everything(resumed), everything(original))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_zero_stage_trains_the_same_adapter(first: Policy, batch: Sequences, stage: int) -> None:
    plain, sharded = learner(first), learner(first, zero_stage=stage)
    update(plain, batch)
    update(sharded, batch)
    largest = max(float((plain.weights()[n] - sharded.weights()[n]).abs().max()) for n in plain.weights())
    assert largest < 1e-4


def test_checkpointed_activations_change_nothing(first: Policy, batch: Sequences) -> None:
    plain, frugal = learner(first), learner(first, gradient_checkpointing=True)
    assert update(plain, batch).metrics == pytest.approx(update(frugal, batch).metrics, rel=1e-4, abs=1e-6)
    assert not same(frugal.weights(), first.tensors("weights") or {})


def test_bfloat16_trains_float32_masters_of_the_adapter(first: Policy, batch: Sequences) -> None:
    actor = learner(first, dtype="bfloat16")
    update(actor, batch)
    adapter = actor.adapter()
    assert adapter is not None
    assert all(tensor.dtype is torch.float32 for tensor in adapter.tensors.values())
    assert any(not torch.equal(t, t.bfloat16().float()) for t in adapter.tensors.values())
    resumed = learner(saved(actor, first), dtype="bfloat16")
    assert same(everything(actor), everything(resumed))


def test_actor_and_critic_share_one_frozen_base(first: Policy) -> None:
    actor = learner(first)
    assert actor._critic is not None
    mine = dict(actor._actor.engine.module.model.model.named_parameters())
    theirs = dict(actor._critic.engine.module.decoder.named_parameters())
    frozen = [name for name, weight in mine.items() if not weight.requires_grad]
    assert frozen and all(mine[name] is theirs[name] for name in frozen)
    adapters = [name for name, weight in mine.items() if weight.requires_grad]
    assert adapters and not any(mine[name] is theirs[name] for name in adapters)
    assert not any(torch.equal(mine[name], theirs[name]) for name in adapters if "lora_A" in name)


def test_the_reference_is_the_base_without_a_second_copy(first: Policy, batch: Sequences) -> None:
    algo = algorithm(estimator="grpo", kl_coefficient=0.1)
    actor = learner(first, algo=algo, rows_per_step=16)
    before = update(actor, batch).metrics["kl_to_base"]
    assert before == pytest.approx(0, abs=1e-7), "before the first step policy and base are the same"
    reference = actor._networks.reference
    assert reference == actor._networks._without_adapters
    full = learner(first, algo=algo, lora=None)
    apart = full._networks.reference
    torch.testing.assert_close(actor._logp(reference, batch), full._logp(apart, batch), atol=1e-5, rtol=0)
    assert update(actor, batch, iteration=1).metrics["kl_to_base"] > 1e-6


def test_a_fork_goes_on_as_its_source_does_also_when_that_is_gone(
    first: Policy, batch: Sequences, tmp_path: Path
) -> None:
    source = learner(first)
    update(source, batch)
    directory = tmp_path / "fork" / "policy_0000"
    directory.parent.mkdir()
    import_policy(saved(source, first), RunConfig(name="fork", iterations=3)).write(directory)
    update(source, batch, iteration=1)
    expected = everything(source)
    shutil.rmtree(first.directory.parent)
    fork = learner(Policy.open(directory))
    update(fork, batch, iteration=1)
    assert same(everything(fork), expected)
    after = saved(fork, Policy.open(directory))
    assert lora.frozen_base(after) == directory / BASE
    assert same(everything(learner(after)), expected)


@pytest.mark.parametrize("other", [None, LoraConfig(rank=2)])
def test_a_fork_with_other_adapters_starts_from_the_merged_weights(
    first: Policy,
    batch: Sequences,
    tmp_path: Path,
    other: LoraConfig | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = learner(first)
    update(source, batch)
    directory = tmp_path / "fork" / "policy_0000"
    directory.parent.mkdir()
    import_policy(saved(source, first), RunConfig(name="fork", iterations=3)).write(directory)
    fork = learner(Policy.open(directory), lora=other)
    assert "optimizer and critic start afresh" in caplog.text
    assert same(fork.weights(), source.weights())
    assert fork.counters()["actor_steps"] == 0
    update(fork, batch)
    resumed = learner(saved(fork, Policy.open(directory)), lora=other)
    assert same(everything(resumed), everything(fork))


def test_a_stage_alone_finds_the_base_that_its_adapter_names(
    first: Policy, batch: Sequences, tmp_path: Path
) -> None:
    actor = learner(first)
    update(actor, batch)
    alone = tmp_path / "update-tiny-0000" / "policy_0001"
    alone.parent.mkdir()
    state(actor, first).write(alone)
    assert same(everything(learner(Policy.open(alone))), everything(actor))
    settings = alone / "adapter" / "adapter_config.json"
    changed = json.loads(settings.read_text()) | {"base_model_name_or_path": str(tmp_path / "gone")}
    settings.write_text(json.dumps(changed))
    sealed(Policy.open(alone))
    with pytest.raises(UserError, match="frozen base of its adapter is gone"):
        learner(Policy.open(alone))


@pytest.mark.parametrize("adapters", [None, RANK])
def test_going_back_to_the_first_policy_forgets_the_critic_too(
    first: Policy, batch: Sequences, adapters: LoraConfig | None
) -> None:
    actor, fresh = learner(first, lora=adapters), learner(first, lora=adapters)
    update(actor, batch)
    actor.restore(first)
    assert same(everything(actor), everything(fresh))
    update(actor, batch)
    update(fresh, batch)
    assert same(everything(actor), everything(fresh))


def test_a_module_name_that_the_model_lacks_is_refused(first: Policy) -> None:
    with pytest.raises(UserError, match=r"learner\.lora\.target_modules = \['query'\]"):
        learner(first, lora=LoraConfig(target_modules=["query"]))


def test_the_stored_model_is_a_plain_one(first: Policy, batch: Sequences) -> None:
    from safetensors.torch import load_file

    actor = learner(first)
    update(actor, batch)
    stored = load_file(saved(actor, first).directory / MODEL)
    assert stored.keys() == (first.tensors("weights") or {}).keys()

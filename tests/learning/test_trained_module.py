"""DeepSpeed around one module: every ZeRO stage is plain AdamW, and a stored state goes on as if never stored."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from builders import learner_config, optimizer
from torch import Tensor, nn

from starpo.learning.deepspeed_engine import TrainedModule, join_process_group

pytestmark = pytest.mark.slow

STAGES = [0, 1, 2, 3]
#: Summation order of the gradient norm is all that may differ.
ROUNDING = 1e-6


def network(*, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def batch(step: int, rows: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 5, generator=generator)
    return x, 3 * x.sum(1, keepdim=True)


def loss_of(model: Any, x: Tensor, y: Tensor, total: int) -> Tensor:
    """Sum of squares over the rows given, divided by the rows of the whole mini-batch."""
    return ((model(x) - y) ** 2).sum() / total


def trained(*, stage: int = 0, seed: int = 0, dtype: str = "float32", **settings: Any) -> TrainedModule:
    module = network(seed=seed)
    if dtype == "bfloat16":
        module = module.to(torch.bfloat16)
    config = learner_config(zero_stage=stage, dtype=dtype)
    return TrainedModule(module, optimizer(**{"learning_rate": 0.05} | settings), config)


def take_step(module: TrainedModule, step: int, *, parts: int = 1) -> tuple[float, float]:
    x, y = batch(step)
    if next(module.engine.module.parameters()).dtype == torch.bfloat16:
        x, y = x.bfloat16(), y.bfloat16()
    slices = list(zip(x.chunk(parts), y.chunk(parts), strict=True))
    for number, (some_x, some_y) in enumerate(slices):
        module.backward(loss_of(module, some_x, some_y, len(x)), last=number == parts - 1)
    return module.step()


def plain_loop(steps: int, *, clip: float, decay: float) -> tuple[dict[str, Tensor], list[float]]:
    """The textbook loop: AdamW with clipping."""
    model = network()
    adam = torch.optim.AdamW(model.parameters(), lr=0.05, betas=(0.9, 0.999), weight_decay=decay)
    norms = []
    for step in range(steps):
        adam.zero_grad()
        x, y = batch(step)
        loss_of(model, x, y, len(x)).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        adam.step()
    return {name: p.detach().clone() for name, p in model.named_parameters()}, norms


def largest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("clip", [0.5, 1e6])
@pytest.mark.parametrize("stage", STAGES)
def test_every_zero_stage_is_plain_adamw_with_clipping(stage: int, clip: float) -> None:
    expected, norms = plain_loop(3, clip=clip, decay=0.1)
    module = trained(stage=stage, gradient_clip=clip, weight_decay=0.1)
    reported = [take_step(module, step)[0] for step in range(3)]
    assert largest(module.weights(), expected) < ROUNDING
    assert reported == pytest.approx(norms, rel=1e-4)
    assert max(norms) > 0.5, "the small limit does clip"


@pytest.mark.parametrize("stage", STAGES)
def test_accumulated_micro_batches_are_one_big_batch(stage: int) -> None:
    whole, pieces = trained(stage=stage), trained(stage=stage)
    for step in range(3):
        norm, _ = take_step(whole, step)
        assert take_step(pieces, step, parts=4)[0] == pytest.approx(norm, rel=1e-4)
    assert largest(whole.weights(), pieces.weights()) < ROUNDING


@pytest.mark.parametrize("stage", STAGES)
def test_a_restored_module_takes_the_identical_next_steps(stage: int) -> None:
    original = trained(stage=stage)
    for step in range(3):
        take_step(original, step)
    weights, moments, steps = original.weights(), original.moments(), original.steps
    assert steps == 3
    fresh = trained(stage=stage, seed=1)
    assert not same(fresh.weights(), weights)
    fresh.restore(weights, moments, steps)
    assert same(fresh.weights(), weights)
    assert same(fresh.moments(), moments)
    for step in (3, 4):
        assert take_step(fresh, step) == take_step(original, step)
        assert same(fresh.weights(), original.weights())
        assert same(fresh.moments(), original.moments())


@pytest.mark.parametrize(("first", "second"), [(0, 2), (3, 0), (1, 3)])
def test_a_state_moves_from_one_zero_stage_to_another(first: int, second: int) -> None:
    original, other = trained(stage=first), trained(stage=second, seed=1)
    take_step(original, 0)
    other.restore(original.weights(), original.moments(), original.steps)
    take_step(original, 1)
    take_step(other, 1)
    assert largest(original.weights(), other.weights()) < ROUNDING


@pytest.mark.parametrize("stage", STAGES)
def test_restoring_without_moments_starts_the_optimizer_afresh(stage: int) -> None:
    used, fresh = trained(stage=stage), trained(stage=stage)
    start = fresh.weights()
    take_step(used, 7)
    used.restore(start, None, 0)
    for step in range(2):
        assert take_step(used, step) == take_step(fresh, step)
    assert same(used.weights(), fresh.weights())


@pytest.mark.parametrize("stage", STAGES)
def test_the_forward_pass_uses_restored_weights_at_once(stage: int) -> None:
    one, other = trained(stage=stage), trained(stage=stage, seed=1)
    other.restore(one.weights(), None, 0)
    x, _ = batch(0)
    with torch.no_grad():
        assert torch.equal(one(x), other(x))


@pytest.mark.parametrize("stage", STAGES)
def test_masters_are_float32_under_bfloat16_and_survive_a_restore(stage: int) -> None:
    original = trained(stage=stage, dtype="bfloat16")
    take_step(original, 0)
    weights = original.weights()
    assert all(tensor.dtype is torch.float32 for tensor in weights.values())
    assert any(not torch.equal(t, t.bfloat16().float()) for t in weights.values()), "finer than bfloat16"
    other = trained(stage=stage, dtype="bfloat16", seed=1)
    other.restore(weights, original.moments(), original.steps)
    take_step(original, 1)
    take_step(other, 1)
    assert same(original.weights(), other.weights())


def test_the_learning_rate_warms_up_and_decays_to_zero() -> None:
    module = trained(learning_rate=1.0, warmup_updates=2, decay_updates=4)
    rates = [take_step(module, step)[1] for step in range(5)]
    # warm-up 1/2, 1, 1, ...; decay 1, 3/4, 1/2, 1/4, 0
    assert rates == pytest.approx([0.5, 0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("stage", STAGES)
def test_a_module_that_never_took_a_step_can_be_stored_and_restored(stage: int) -> None:
    idle, other = trained(stage=stage), trained(stage=stage, seed=1)
    assert not any(moment.any() for moment in idle.moments().values())
    other.restore(idle.weights(), idle.moments(), idle.steps)
    assert take_step(idle, 0) == take_step(other, 0)
    assert same(idle.weights(), other.weights())


def test_frozen_parameters_are_neither_trained_nor_stored() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    module = TrainedModule(model, optimizer(), learner_config())
    take_step(module, 0)
    assert sorted(module.weights()) == ["2.bias", "2.weight"]
    assert torch.equal(model[0].weight, before)


def test_a_single_process_needs_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs side by side on one machine must not race for a port: none is asked for in the environment."""
    monkeypatch.delenv("MASTER_PORT", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    join_process_group(torch.device("cpu"))
    assert torch.distributed.is_initialized()
    assert torch.distributed.get_world_size() == 1
    assert "MASTER_PORT" not in os.environ


@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "made anew by another"])
def test_process_groups_that_another_library_ended_are_made_anew(made_anew: bool) -> None:
    """As vLLM does with its last engine; a second engine makes a world of its own, which the learner then shares."""
    take_step(trained(), 0)
    torch.distributed.destroy_process_group()
    if made_anew:
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    take_step(trained(), 0)

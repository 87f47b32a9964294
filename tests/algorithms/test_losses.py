"""Losses, divergences and aggregation: hand values, masking of values and gradients, micro-batch splits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from starpo.algorithms import entropy
from starpo.algorithms.entropy import token_distribution
from starpo.algorithms.kl import adapt_coefficient, subtract_kl, token_kl
from starpo.algorithms.masking import (
    aggregate,
    masked_mean,
    masked_sum,
    masked_var,
    masked_whiten,
)
from starpo.algorithms.policy_loss import gspo_loss, ppo_loss, truncated_importance_weight
from starpo.algorithms.value_loss import value_loss

NAN = float("nan")
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
ONE = torch.ones(1, 1, dtype=torch.bool)


def draw(seed: int, rows: int = 6, columns: int = 9) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((rows, columns)) < 0.5)
    names = ("logp", "old_logp", "ref_logp", "advantages", "values", "old_values", "returns")
    return {"mask": mask} | {name: torch.from_numpy(rng.normal(size=(rows, columns))) for name in names}


def ppo(d: dict[str, Tensor]) -> Tensor:
    return ppo_loss(d["logp"], d["old_logp"], d["advantages"], d["mask"], dual_clip=3.0).loss


def gspo(d: dict[str, Tensor]) -> Tensor:
    return gspo_loss(d["logp"], d["old_logp"], d["advantages"], d["mask"], clip_low=0.5, clip_high=0.5).loss


def corrected(d: dict[str, Tensor]) -> Tensor:
    return truncated_importance_weight(d["old_logp"], d["ref_logp"], d["mask"]).weight * ppo(d)


def critic(d: dict[str, Tensor]) -> Tensor:
    return value_loss(d["logp"], d["old_values"], d["returns"], d["mask"]).loss


def k3(d: dict[str, Tensor]) -> Tensor:
    return token_kl(d["logp"], d["ref_logp"], d["mask"], "k3")


def k1(d: dict[str, Tensor]) -> Tensor:
    return token_kl(d["logp"], d["ref_logp"], d["mask"], "k1")


def absolute(d: dict[str, Tensor]) -> Tensor:
    return token_kl(d["logp"], d["ref_logp"], d["mask"], "abs")


def k2(d: dict[str, Tensor]) -> Tensor:
    return token_kl(d["logp"], d["ref_logp"], d["mask"], "k2")


LOSSES: list[Callable[[dict[str, Tensor]], Tensor]] = [ppo, gspo, corrected, critic, k1, absolute, k2, k3]


# ---------------------------------------------------------------- properties of every loss


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_nan_outside_the_mask_changes_neither_loss_nor_gradient(loss):
    clean = draw(3)
    spoilt = {k: v if k == "mask" else torch.where(clean["mask"], v, NAN) for k, v in clean.items()}
    results = []
    for data in (clean, spoilt):
        leaf = data["logp"].clone().requires_grad_()
        total = aggregate(loss(data | {"logp": leaf}), data["mask"])
        total.backward()
        results.append((total.detach(), leaf.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert torch.count_nonzero(results[1][1][~clean["mask"]]) == 0
    assert torch.count_nonzero(results[1][1]) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@examples(0.1)
@given(seed=st.integers(0, 10**6), cuts=st.sets(st.integers(1, 5)))
def test_splitting_into_micro_batches_changes_neither_loss_nor_gradient(loss, mode, seed, cuts):
    data = draw(seed)
    mask = data["mask"]
    totals = {
        "total_tokens": int(mask.sum()),
        "total_sequences": int(mask.any(dim=1).sum()),
        "length_norm": 7,
    }
    whole = data["logp"].clone().requires_grad_()
    full = aggregate(loss(data | {"logp": whole}), mask, mode, length_norm=7)
    full.backward()

    parts = data["logp"].clone().requires_grad_()
    summed = 0.0
    bounds = [0, *sorted(cuts), len(mask)]
    for start, stop in itertools.pairwise(bounds):
        # As wide as its own longest row, as a micro-batch is.
        width = max([1, *(1 + mask[start:stop].nonzero()[:, 1]).tolist()])
        piece = {name: tensor[start:stop, :width] for name, tensor in (data | {"logp": parts}).items()}
        part = aggregate(loss(piece), piece["mask"], mode, **totals)
        part.backward()
        summed += float(part.detach())
    assert summed == pytest.approx(float(full.detach()), abs=1e-12)
    assert torch.allclose(whole.grad, parts.grad, atol=1e-14)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@examples(0.1)
@given(seed=st.integers(0, 10**6), world=st.integers(1, 4))
def test_sharing_the_rows_among_ranks_changes_neither_loss_nor_gradient(loss, mode, seed, world):
    data = draw(seed)
    mask = data["mask"]
    whole = data["logp"].clone().requires_grad_()
    full = aggregate(loss(data | {"logp": whole}), mask, mode, length_norm=7)
    full.backward()

    # Every rank takes its rows and rows of padding up to a common number; gradients are averaged over ranks.
    totals = {
        "total_tokens": int(mask.sum()),
        "total_sequences": int(mask.any(dim=1).sum()),
        "length_norm": 7,
    }
    shares, most = torch.arange(len(mask)).tensor_split(world), -(-len(mask) // world)
    leaf = data["logp"].clone().requires_grad_()
    mean = 0.0
    for share in shares:
        shard = {name: tensor[share] for name, tensor in (data | {"logp": leaf}).items()}
        padding = most - len(share)
        for name, tensor in shard.items():
            empty = torch.full((padding, tensor.shape[1]), name != "mask" and NAN, dtype=tensor.dtype)
            shard[name] = torch.cat([tensor, empty])
        rank = world * aggregate(loss(shard), shard["mask"], mode, **totals)
        (rank / world).backward()
        mean += float(rank.detach()) / world
    assert mean == pytest.approx(float(full.detach()), abs=1e-12)
    assert torch.allclose(whole.grad, leaf.grad, atol=1e-14)


def degenerate_losses() -> dict[str, dict[str, Tensor]]:
    nothing = torch.zeros(6, 9, dtype=torch.bool)
    single, one_row_empty = nothing.clone(), draw(7)["mask"].clone()
    single[2, 3] = True
    one_row_empty[0] = False
    zero, far = torch.zeros(6, 9, dtype=torch.float64), torch.full((6, 9), -1e4, dtype=torch.float64)
    return {
        "all masked": {"mask": nothing},
        "one token": {"mask": single},
        "one row masked": {"mask": one_row_empty},
        "no advantage": {"advantages": zero},
        "value and return equal": {"values": zero, "returns": zero, "old_values": zero},
        "impossible under the new policy": {"logp": far},
        "impossible under the others": {"old_logp": far, "ref_logp": far},
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("loss", "kind"),
    # k3 grows as exp(-d) and is not clamped: it is infinite where the reference is e^700 times likelier.
    [
        (loss, kind)
        for loss in LOSSES
        for kind in degenerate_losses()
        if (loss, kind[:10]) != (k3, "impossible")
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_degenerate_batches_give_finite_losses_and_gradients(loss, kind, mode):
    data = draw(7) | degenerate_losses()[kind]
    leaf = data["logp"].clone().requires_grad_()
    total = aggregate(loss(data | {"logp": leaf}), data["mask"], mode)
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(leaf.grad).all()
    assert torch.count_nonzero(leaf.grad[~data["mask"]]) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_padding_row_changes_no_loss(mode):
    data = draw(4)
    loss, mask = data["values"], data["mask"]
    padded = torch.cat([loss, torch.full((2, loss.shape[1]), NAN)])
    padded_mask = torch.cat([mask, torch.zeros(2, loss.shape[1], dtype=torch.bool)])
    assert torch.allclose(aggregate(loss, mask, mode), aggregate(padded, padded_mask, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_a_batch_without_sampled_tokens_has_loss_zero_and_gradient_zero(loss, mode):
    data = draw(5) | {"mask": torch.zeros(6, 9, dtype=torch.bool)}
    leaf = data["logp"].clone().requires_grad_()
    total = aggregate(loss(data | {"logp": leaf}), data["mask"], mode)
    total.backward()
    assert float(total.detach()) == 0.0
    assert torch.count_nonzero(leaf.grad) == 0
    assert float(aggregate(loss(data), data["mask"], mode, total_tokens=0, total_sequences=0)) == 0.0


# ---------------------------------------------------------------- hand values


def test_aggregation_modes_by_hand():
    loss = torch.tensor([[1.0, 2.0, 3.0], [5.0, NAN, NAN], [NAN, NAN, NAN]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    values = {mode: float(aggregate(loss, mask, mode)) for mode in MODES}
    assert values == pytest.approx(dict(zip(MODES, [11 / 4, 11 / 2, 7 / 2, 11 / 6], strict=True)))
    assert float(aggregate(loss, mask, MODES[3], length_norm=10)) == pytest.approx(11 / 20)
    with pytest.raises(ValueError, match="known: token-mean"):
        aggregate(loss, mask, "mean")
    with pytest.raises(ValueError, match="total_tokens must be positive"):
        aggregate(loss, mask, total_tokens=0)
    with pytest.raises(ValueError, match="length_norm must be a positive"):
        aggregate(loss, mask, MODES[3], length_norm=0)


def test_masked_statistics_by_hand():
    values = torch.tensor([[1.0, 3.0, NAN], [NAN, 8.0, NAN]])
    mask = torch.tensor([[1, 1, 0], [0, 1, 0]]).bool()
    assert float(masked_sum(values, mask)) == 12
    assert float(masked_mean(values, mask)) == 4
    assert masked_mean(values, mask, dim=1).tolist() == [2, 8]
    assert float(masked_var(values, mask)) == 13
    white = masked_whiten(values, mask)
    assert white[0, :2].tolist() == pytest.approx([-3 / math.sqrt(13), -1 / math.sqrt(13)])


@pytest.mark.parametrize("selected", [0, 1])
def test_whitening_none_or_one_token_is_finite(selected):
    mask = torch.zeros(2, 3, dtype=torch.bool)
    mask[0, :selected] = True
    assert torch.count_nonzero(masked_whiten(torch.full((2, 3), 7.0), mask)) == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "flag"),
    [
        (1.1, 1.0, -1.1, None),
        (2.0, 1.0, -1.28, "clipped_high"),
        (0.5, 1.0, -0.5, None),
        (0.5, -1.0, 0.8, "clipped_low"),
        (2.0, -1.0, 2.0, None),
        (5.0, -1.0, 3.0, "dual_clipped"),
        (2.0, 0.0, 0.0, None),
    ],
)
def test_ppo_by_hand_with_the_flag_and_no_gradient_where_clipped(ratio, advantage, loss, flag):
    logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    result = ppo_loss(logp, zero, torch.full_like(zero, advantage), ONE, dual_clip=3.0)
    assert float(result.loss.detach()) == pytest.approx(loss)
    assert float(result.ratio) == pytest.approx(ratio)
    assert float(result.approx_kl) == pytest.approx(-math.log(ratio))
    flags = {name for name in ("clipped_high", "clipped_low", "dual_clipped") if bool(getattr(result, name))}
    assert flags == ({flag} if flag else set())
    result.loss.sum().backward()
    expected = 0.0 if flag else -advantage * ratio
    assert float(logp.grad) == pytest.approx(expected)


@pytest.mark.parametrize("loss", [ppo_loss, gspo_loss])
@pytest.mark.parametrize("gap", [-1e4, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_extreme_ratios_keep_loss_and_gradient_finite(loss, gap, advantage, dual_clip):
    logp = torch.full((1, 2), gap, requires_grad=True)
    zero = torch.zeros(1, 2)
    result = loss(logp, zero, torch.full_like(zero, advantage), torch.ones(1, 2).bool(), dual_clip=dual_clip)
    result.loss.sum().backward()
    assert torch.isfinite(result.loss).all()
    assert torch.isfinite(logp.grad).all()


def test_gspo_uses_the_geometric_mean_ratio_of_the_row_for_every_token():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    logp = torch.tensor([[0.4, -0.2, NAN], [0.3, NAN, NAN]], dtype=torch.float64, requires_grad=True)
    old = torch.zeros(2, 3, dtype=torch.float64)
    result = gspo_loss(logp, old, torch.ones_like(old), mask, clip_low=0.2, clip_high=0.2)
    assert result.ratio[0, :2].tolist() == pytest.approx([math.exp(0.1)] * 2)
    assert result.clipped_high.tolist() == [[False] * 3, [True, False, False]]
    aggregate(result.loss, mask, "seq-mean-token-mean").backward()
    # d/dlogp of -s / 2 sequences, s = exp(mean): each of the row's two tokens gets half of it.
    assert logp.grad[0].tolist() == pytest.approx([-math.exp(0.1) / 4, -math.exp(0.1) / 4, 0])
    assert logp.grad[1].tolist() == [0, 0, 0]


def test_the_gspo_gradient_is_that_of_the_sequence_ratio():
    data = draw(6)
    leaf = data["logp"].clone().requires_grad_()
    mask, advantage = data["mask"], data["advantages"][:, :1].expand(6, 9)
    result = gspo_loss(leaf, data["old_logp"], advantage, mask, clip_low=1.0, clip_high=1e9)
    aggregate(result.loss, mask, "seq-mean-token-mean").backward()
    direct = data["logp"].clone().requires_grad_()
    ratio = masked_mean(direct - data["old_logp"], mask, dim=1).exp()
    rows = mask.any(dim=1)
    (-(ratio * advantage[:, 0])[rows].sum() / rows.sum()).backward()
    assert torch.allclose(leaf.grad, direct.grad)


def test_truncated_importance_weights_by_hand():
    learner = torch.tensor([[-1.0, -2.0, NAN]])
    engine = torch.tensor([[-2.0, -1.5, NAN]])
    mask = torch.tensor([[1, 1, 0]]).bool()
    result = truncated_importance_weight(learner, engine, mask, cap=2.0)
    assert result.weight[0].tolist() == pytest.approx([2.0, math.exp(-0.5), 0])
    assert result.truncated.tolist() == [[True, False, False]]
    with pytest.raises(ValueError, match="cap must be positive"):
        truncated_importance_weight(learner, engine, mask, cap=0)


@pytest.mark.parametrize(
    ("value", "loss", "clipped"), [(2.0, 3.125, True), (0.3, 3.645, False), (6.0, 4.5, False)]
)
def test_value_loss_by_hand(value, loss, clipped):
    prediction, zero = torch.tensor([[value]], dtype=torch.float64, requires_grad=True), torch.zeros(1, 1)
    result = value_loss(prediction, zero, torch.full((1, 1), 3.0), ONE, clip=0.5)
    assert float(result.loss.detach()) == pytest.approx(loss)
    assert bool(result.clipped) is clipped
    result.loss.sum().backward()
    assert float(prediction.grad) == pytest.approx(0.0 if clipped else value - 3.0)


def test_value_loss_without_clip_is_half_the_square():
    result = value_loss(torch.tensor([[5.0]]), torch.zeros(1, 1), torch.tensor([[3.0]]), ONE, clip=None)
    assert float(result.loss) == 2.0
    assert not bool(result.clipped)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clip_low": 1.5}, "clip_low must be in"),
        ({"clip_high": -0.1}, "clip_high must not be negative"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1"),
    ],
)
def test_impossible_clip_bounds_are_refused(arguments, message):
    zero = torch.zeros(1, 1)
    for loss in (ppo_loss, gspo_loss):
        with pytest.raises(ValueError, match=message):
            loss(zero, zero, zero, ONE, **arguments)
    with pytest.raises(ValueError, match="clip must be positive"):
        value_loss(zero, zero, zero, ONE, clip=0.0)


# ---------------------------------------------------------------- entropy and log-probabilities


def test_entropy_and_log_probabilities_match_torch_distributions_and_autograd():
    logits = torch.randn(
        2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    labels = torch.tensor([[0, 1, 2], [3, 4, 5]])
    ours = token_distribution(logits, labels, temperature=0.5)
    right = torch.distributions.Categorical(logits=logits / 0.5)
    assert torch.allclose(ours.entropy, right.entropy())
    assert torch.allclose(ours.logp, right.log_prob(labels))
    (ours_gradient,) = torch.autograd.grad(ours.entropy.sum(), logits, retain_graph=True)
    (right_gradient,) = torch.autograd.grad(right.entropy().sum(), logits)
    assert torch.allclose(ours_gradient, right_gradient)


def test_forbidden_tokens_and_masked_positions_leave_values_and_gradients_finite():
    logits = torch.tensor([[[0.0, 0.0, -math.inf], [NAN, NAN, NAN]]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    ours = token_distribution(logits, torch.tensor([[1, -100]]), mask)
    assert ours.logp[0].tolist() == pytest.approx([-math.log(2), 0])
    assert ours.entropy[0].tolist() == pytest.approx([math.log(2), 0])
    (ours.logp.sum() + ours.entropy.sum()).backward()
    assert torch.isfinite(logits.grad).all()
    assert torch.count_nonzero(logits.grad[0, 1]) == 0


def test_wrong_shapes_and_temperatures_are_refused():
    with pytest.raises(ValueError, match="temperature must be positive"):
        token_distribution(torch.zeros(1, 2), torch.tensor([0]), temperature=0)
    with pytest.raises(ValueError, match=r"labels must have shape \(1,\)"):
        token_distribution(torch.zeros(1, 2), torch.tensor([[0]]))


# ---------------------------------------------------------------- KL


def test_kl_estimators_by_hand():
    logp, ref = torch.tensor([[-1.0]]), torch.tensor([[-2.0]])
    values = {name: float(token_kl(logp, ref, ONE, name)) for name in ("k1", "abs", "k2", "k3")}
    assert values == pytest.approx({"k1": 1.0, "abs": 1.0, "k2": 0.5, "k3": math.exp(-1)})
    assert float(token_kl(ref, logp, ONE, "k1")) == -1.0
    assert float(subtract_kl(torch.ones(1, 1), logp, ref, ONE, coefficient=0.1)) == pytest.approx(0.9)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("chunk", [1 << 20, 13])
def test_gradients_of_log_prob_and_entropy_are_those_of_finite_differences(monkeypatch, temperature, chunk):
    monkeypatch.setattr(entropy, "CHUNK_ELEMENTS", chunk)
    logits = draw_logits(3, 4, 5).requires_grad_()
    labels = torch.arange(12).reshape(3, 4) % 5

    def both(values):
        return tuple(token_distribution(values, labels, temperature=temperature))

    assert torch.autograd.gradcheck(both, (logits,))


def draw_logits(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_forbidden_token_takes_no_gradient_from_log_prob_or_entropy():
    logits = draw_logits(2, 4)
    logits[:, 3] = -math.inf
    logits.requires_grad_()
    chosen = token_distribution(logits, torch.tensor([0, 2]))
    (chosen.logp.sum() + chosen.entropy.sum()).backward()
    assert logits.grad[:, 3].tolist() == [0, 0]
    assert torch.isfinite(logits.grad).all()


def test_an_undefined_logit_outside_the_mask_reaches_neither_value_nor_gradient():
    logits = draw_logits(2, 4)
    logits[1, 1] = NAN
    logits.requires_grad_()
    chosen = token_distribution(logits, torch.tensor([0, 2]), torch.tensor([True, False]))
    (chosen.logp.sum() + chosen.entropy.sum()).backward()
    assert torch.isfinite(chosen.logp).all()
    assert logits.grad[1].tolist() == [0, 0, 0, 0]
    assert logits.grad[0].abs().sum() > 0


def test_bfloat16_logits_get_a_bfloat16_gradient_of_float32_arithmetic():
    rough = draw_logits(3, 7).bfloat16()
    exact = rough.double().requires_grad_()
    rough.requires_grad_()
    for leaf in (rough, exact):
        chosen = token_distribution(leaf, torch.tensor([0, 1, 2]))
        (chosen.logp + 0.3 * chosen.entropy).sum().backward()
    assert rough.grad.dtype is torch.bfloat16
    assert torch.allclose(rough.grad.double(), exact.grad, atol=1e-3, rtol=2**-8)


def test_k3_is_not_clamped_unless_asked_so_that_far_policies_are_pulled_back():
    logp, ref = torch.tensor([[-9.0]], requires_grad=True), torch.tensor([[-1.0]])
    token_kl(logp, ref, ONE, "k3").sum().backward()
    assert float(logp.grad) == pytest.approx(1 - math.exp(8))
    logp.grad = None
    clamped = token_kl(logp, ref, ONE, "k3", clamp=10.0)
    clamped.sum().backward()
    assert float(clamped.detach()) == 10.0
    assert float(logp.grad) == 0.0


def test_k1_and_k3_are_unbiased_and_the_k2_gradient_is_that_of_the_divergence():
    theta = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 0.5, -0.5], dtype=torch.float64), dim=0)
    log_p = torch.log_softmax(theta, dim=0)
    exact = (log_p.exp() * (log_p - reference)).sum()
    weights = log_p.detach().exp()
    mask = torch.ones(1, 3, dtype=torch.bool)
    for name in ("k1", "k3"):
        mean = (weights * token_kl(log_p[None], reference[None], mask, name)[0]).sum()
        assert torch.allclose(mean, exact)
    (direct,) = torch.autograd.grad(exact, theta, retain_graph=True)
    estimate = (weights * token_kl(log_p[None], reference[None], mask, "k2")[0]).sum()
    (ours,) = torch.autograd.grad(estimate, theta)
    assert torch.allclose(ours, direct)


def test_the_adaptive_coefficient_moves_towards_the_target_and_never_by_more_than_a_fifth_of_the_step():
    adapt = {"target": 6.0, "horizon": 10_000, "steps": 256}
    assert adapt_coefficient(0.2, 6.0, **adapt) == 0.2
    assert adapt_coefficient(0.2, 7.0, **adapt) == pytest.approx(0.2 * (1 + 0.0256 / 6))
    assert adapt_coefficient(0.2, 1e9, **adapt) == pytest.approx(0.2 * (1 + 0.2 * 0.0256))
    assert adapt_coefficient(0.2, -1.0, **adapt) == pytest.approx(0.2 * (1 - 0.2 * 0.0256))
    with pytest.raises(ValueError, match="must be positive"):
        adapt_coefficient(0.2, 1.0, target=0.0, horizon=1, steps=1)


def test_unknown_kl_estimators_and_clamps_are_refused():
    with pytest.raises(ValueError, match="known: k1, abs, k2, k3"):
        token_kl(torch.zeros(1, 1), torch.zeros(1, 1), ONE, "low_var_kl")
    with pytest.raises(ValueError, match="clamp must be positive"):
        token_kl(torch.zeros(1, 1), torch.zeros(1, 1), ONE, "k3", clamp=0.0)

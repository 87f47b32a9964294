"""Clipped policy-gradient losses per token, with the indicators that say which tokens were clipped.

Losses stay per token: :func:`starpo.algorithms.masking.aggregate` reduces them with the totals of the whole
step, and metrics are sums of indicators, so neither depends on how a batch was cut into micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask, masked, masked_mean

MAX_LOG_RATIO = 20.0
"""|log ratio| is held at this: e^20 is far beyond any clip range, while e^89 overflows float32, and an
infinite ratio that the clip then discards still leaves a NaN gradient (inf * 0)."""


@dataclass(frozen=True)
class PolicyLoss:
    """A policy loss and its diagnostics; every tensor is [B, T] and 0 or False outside the mask."""

    loss: Tensor
    """float, to be minimised; carries the gradient."""
    ratio: Tensor
    """float, pi_new / pi_old (per token or per sequence), detached."""
    clipped_high: Tensor
    """bool: advantage > 0 and ratio above 1 + clip_high; no gradient."""
    clipped_low: Tensor
    """bool: advantage < 0 and ratio below 1 - clip_low; no gradient."""
    dual_clipped: Tensor
    """bool: advantage < 0 and ratio above the dual clip; no gradient."""
    approx_kl: Tensor
    """float, log pi_old - log pi_new (the k1 estimate of KL(old || new)), detached."""


def _check_clips(clip_low: float, clip_high: float, dual_clip: float | None) -> None:
    if not 0.0 <= clip_low <= 1.0:
        raise ValueError(f"clip_low must be in [0, 1], got {clip_low}")
    if clip_high < 0.0:
        raise ValueError(f"clip_high must not be negative, got {clip_high}")
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(f"dual_clip must be above 1 (a ratio), got {dual_clip}; None switches it off")


def _clipped_surrogate(
    log_ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> PolicyLoss:
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = 1.0 - clip_low, 1.0 + clip_high
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(low, high))
    dual = torch.zeros_like(mask)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)
        dual = mask & (advantages < 0) & (ratio > dual_clip)
    return PolicyLoss(
        loss=masked(loss, mask),
        ratio=masked(ratio.detach(), mask),
        clipped_high=mask & (advantages > 0) & (ratio > high),
        clipped_low=mask & (advantages < 0) & (ratio < low),
        dual_clipped=dual,
        approx_kl=masked(-log_ratio.detach(), mask),
    )


def ppo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """PPO's clipped surrogate with separate bounds (arXiv 1707.06347, eq. 7; DAPO's clip-higher, 2503.14476).

    With ratio rho = exp(logp - old_logp),

        l = max(-A rho, -A clip(rho, 1 - clip_low, 1 + clip_high))

    and, where A < 0 and a dual clip c is given, l = min(l, -A c) (arXiv 1912.09729). RAGEN's StarPO
    uses 0.2 / 0.2 and StarPO-S 0.2 / 0.28, both with c = 3.

    Args:
        logp: float [B, T], of the policy being trained; carries the gradient.
        old_logp: float [B, T], of the policy that is the ratio's denominator.
        advantages: float [B, T].
        mask: bool [B, T].
        clip_low: lower half-width, in [0, 1].
        clip_high: upper half-width, not negative.
        dual_clip: bound on the ratio for negative advantages, above 1; None for none.

    Raises:
        ValueError: a bound out of range, or shapes that differ.

    Example: ratio 2, advantage 1 gives loss -1.28 with ``clipped_high``; advantage -1 gives 2.
    """
    _check_clips(clip_low, clip_high, dual_clip)
    check_mask(mask, logp, old_logp, advantages)
    log_ratio = masked(logp, mask) - masked(old_logp, mask).detach()
    return _clipped_surrogate(
        log_ratio,
        masked(advantages, mask).detach(),
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )


def gspo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """GSPO: one length-normalised ratio per sequence (arXiv 2507.18071, in its token form).

        s_i = exp(1/n_i sum_t (logp_it - old_logp_it)),   s_it = sg[s_i] pi_it / sg[pi_it]

    Every token carries its row's ratio and is clipped with it; the gradient of a token is s_i A_it times its
    own score. Meant for ``seq-mean-token-mean`` aggregation and for advantages constant in a row; others are
    accepted. Clip bounds are much narrower than PPO's because s_i is a geometric mean.

    Arguments, result and errors as in :func:`ppo_loss`.
    """
    _check_clips(clip_low, clip_high, dual_clip)
    check_mask(mask, logp, old_logp, advantages)
    new = masked(logp, mask)
    sequence = masked_mean(new - masked(old_logp, mask), mask, dim=-1).detach()
    log_ratio = sequence[:, None] + new - new.detach()
    return _clipped_surrogate(
        log_ratio,
        masked(advantages, mask).detach(),
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )


@dataclass(frozen=True)
class MismatchWeight:
    """Correction for an engine whose probabilities differ from the learner's; tensors [B, T]."""

    weight: Tensor
    """float, min(pi_learner / pi_engine, cap); 0 outside the mask; detached."""
    truncated: Tensor
    """bool, where the cap applied."""


@torch.no_grad()
def truncated_importance_weight(
    learner_logp: Tensor, engine_logp: Tensor, mask: Tensor, *, cap: float = 2.0
) -> MismatchWeight:
    """Truncated importance sampling between rollout engine and learner, for the same weights.

        w_t = min(exp(learner_logp_t - engine_logp_t), cap)

    Multiply a per-token policy loss by ``weight``: the expectation is then over the learner's distribution
    although the engine's kernels sampled. Both log-probabilities must describe the distribution that was
    sampled from (temperature included, no top-p or top-k), else the weight is biased.

    Raises:
        ValueError: ``cap`` is not positive, or shapes differ.

    Example: log-probabilities -1.0 (learner) and -2.0 (engine) give exp(1) > 2, hence weight 2, truncated.
    """
    if cap <= 0:
        raise ValueError(f"cap must be positive, got {cap}")
    check_mask(mask, learner_logp, engine_logp)
    log_weight = masked(learner_logp, mask) - masked(engine_logp, mask)
    weight = log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return MismatchWeight(masked(weight.clamp(max=cap), mask), mask & (weight > cap))

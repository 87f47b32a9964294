"""Per-token estimates of KL(policy || reference), the KL penalty in the reward, its coefficient's schedule.

With tokens sampled from the policy and d = logp - ref_logp (Schulman, "Approximating KL divergence", 2020):

* ``k1`` = d: unbiased, large variance, may be negative. Its gradient as a loss has expectation 0: use it in
  the reward, not as a loss.
* ``abs`` = |d|.
* ``k2`` = d^2 / 2: biased value, but the gradient is that of KL(policy || reference).
* ``k3`` = exp(-d) - 1 + d: unbiased, never negative.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask, masked

KLEstimator = Literal["k1", "abs", "k2", "k3"]

MAX_RELATIVE_ERROR = 0.2
"""The largest relative error the adaptive controller acts on at once (arXiv 1909.08593, section 2.2)."""


def token_kl(
    logp: Tensor, ref_logp: Tensor, mask: Tensor, estimator: KLEstimator = "k3", *, clamp: float | None = None
) -> Tensor:
    """Estimate the divergence at each sampled token.

    Args:
        logp: float [B, T]; carries the gradient.
        ref_logp: float [B, T], no gradient.
        mask: bool [B, T].
        estimator: see the module's text.
        clamp: bound on the estimate's magnitude; the gradient is 0 beyond it, so by default there is none.

    Returns:
        float [B, T], nats, 0 outside the mask.

    Raises:
        ValueError: unknown estimator, clamp not positive, or shapes that differ.

    Example: logp = -1, ref_logp = -2 give k1 = 1, k2 = 0.5, k3 = 0.3679.
    """
    if estimator not in get_args(KLEstimator):
        raise ValueError(f"unknown KL estimator {estimator!r}; known: {', '.join(get_args(KLEstimator))}")
    if clamp is not None and clamp <= 0:
        raise ValueError(f"clamp must be positive, got {clamp}; None switches it off")
    check_mask(mask, logp, ref_logp)
    d = masked(logp, mask) - masked(ref_logp, mask).detach()
    if estimator == "k1":
        kl = d
    elif estimator == "abs":
        kl = d.abs()
    elif estimator == "k2":
        kl = 0.5 * d**2
    else:
        kl = torch.expm1(-d) + d
    return kl if clamp is None else kl.clamp(-clamp, clamp)


@torch.no_grad()
def subtract_kl(
    token_rewards: Tensor,
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    *,
    coefficient: float,
    estimator: KLEstimator = "k1",
    clamp: float | None = None,
) -> Tensor:
    """KL penalty in the reward: r_t - coefficient * kl_t on sampled tokens (arXiv 1909.08593, eq. 2).

    Returns:
        float [B, T], 0 outside the mask.
    """
    penalty = token_kl(logp, ref_logp, mask, estimator, clamp=clamp)
    return masked(token_rewards, mask) - coefficient * penalty


def adapt_coefficient(
    coefficient: float, measured_kl: float, *, target: float, horizon: int, steps: int
) -> float:
    """The next KL coefficient of the proportional controller (arXiv 1909.08593, section 2.2).

        beta' = beta (1 + clip(kl / target - 1, -0.2, 0.2) steps / horizon)

    A fixed coefficient needs no function.

    Args:
        coefficient: the present one, nats^-1.
        measured_kl: mean divergence over the batch, nats.
        target: the divergence to hold, nats, above 0.
        horizon: trajectories over which a lasting error of 20 % changes the coefficient by 20 %, above 0.
        steps: trajectories in this batch.

    Raises:
        ValueError: target or horizon not positive.

    Example: ``adapt_coefficient(0.2, 7.0, target=6.0, horizon=10_000, steps=256)`` is 0.2 (1 + 0.1667 *
    0.0256).
    """
    if target <= 0 or horizon <= 0:
        raise ValueError(f"target and horizon must be positive, got {target} and {horizon}")
    error = min(max(measured_kl / target - 1.0, -MAX_RELATIVE_ERROR), MAX_RELATIVE_ERROR)
    return coefficient * (1.0 + error * steps / horizon)

"""Where engine and learner give a sampled token different probabilities: how far apart, and a correction."""

from __future__ import annotations

import torch
from torch import Tensor

from starpo.algorithms.masking import masked_mean
from starpo.algorithms.policy_loss import truncated_importance_weight


def corrected_advantages(
    advantages: Tensor, learner_logp: Tensor, engine_logp: Tensor, sampled: Tensor, *, cap: float
) -> tuple[Tensor, dict[str, float]]:
    """Advantages times min(p_learner / p_engine, cap) on sampled tokens, and the weights' metrics.

    PPO's and GSPO's losses are linear in the size of the advantage, so this is the weighted loss of
    :func:`starpo.algorithms.policy_loss.truncated_importance_weight`.

    Args:
        advantages: float [N, T].
        learner_logp: float [N, T], under the weights that the engine sampled with.
        engine_logp: float [N, T], as recorded while sampling.
        sampled: bool [N, T], where the engine sampled; other tokens keep their advantage.
        cap: largest weight.
    """
    correction = truncated_importance_weight(learner_logp, engine_logp, sampled, cap=cap)
    metrics = {
        "importance_weight_mean": float(masked_mean(correction.weight, sampled)),
        "importance_truncated_share": float(masked_mean(correction.truncated.float(), sampled)),
    }
    return advantages * torch.where(sampled, correction.weight, 1.0), metrics

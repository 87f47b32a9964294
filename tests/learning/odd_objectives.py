"""Estimators and policy losses of a user's own that go wrong, addressed as ``odd_objectives:name``."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from starpo.algorithms.estimators import AdvantageBatch, grpo
from starpo.algorithms.gae import Advantages
from starpo.algorithms.policy_loss import PolicyLoss, ppo_loss

calls: list[int] = []
"""Rows of every call of a policy loss."""


def spoilt(batch: AdvantageBatch, *, value: str, where: str = "advantages") -> Advantages:
    """GRPO's, but ``value`` (as text, for parameters are finite) in every token of the third trajectory."""
    found = grpo(batch)
    wrong = torch.where(batch.mask, float(value), 0.0)
    parts = {"advantages": found.advantages.clone(), "returns": found.returns.clone()}
    parts[where][2] = wrong[2]
    return Advantages(**parts)


def failing(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, *, bad: list[int], value: str
) -> PolicyLoss:
    """PPO's, but in the calls numbered ``bad`` the last row's is ``value``, whose gradient is finite."""
    calls.append(len(logp))
    found = ppo_loss(logp, old_logp, advantages, mask)
    if len(calls) - 1 not in bad:
        return found
    loss = torch.cat([found.loss[:-1], torch.where(mask[-1:], float(value), found.loss[-1:])])
    return replace(found, loss=loss)


def hungry(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, *, rows: int, first: int = 0
) -> PolicyLoss:
    """PPO's, but from call ``first`` on there is no memory for more than ``rows`` rows."""
    calls.append(len(logp))
    if len(calls) > first and len(logp) > rows:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
    return ppo_loss(logp, old_logp, advantages, mask)


def greedy(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
    """PPO's, which first asks the CPU's allocator for what no machine has."""
    calls.append(len(logp))
    torch.empty(1 << 60, dtype=torch.uint8)
    return ppo_loss(logp, old_logp, advantages, mask)


def broken(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
    """Does not work."""
    raise RuntimeError("broken")

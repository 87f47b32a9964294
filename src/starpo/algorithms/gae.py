"""Generalised advantage estimation over the tokens the policy sampled.

The recursion runs from one sampled token to the next and steps over everything between: prompts, environment
text, template glue and padding are no decisions, so they neither discount nor bootstrap.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from starpo.algorithms.masking import check_mask, masked


class Advantages(NamedTuple):
    """What an estimator hands to the losses."""

    advantages: Tensor
    """float [B, T], 0 where the mask is False."""
    returns: Tensor
    """float [B, T], the critic's targets, 0 where the mask is False."""


def check_unit_interval(**factors: float) -> None:
    """Raise ValueError, naming the argument, for a discount or trace factor outside [0, 1]."""
    for name, value in factors.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1], got {value}")


def last_token_of_turn(mask: Tensor, turn_index: Tensor, turns: int) -> Tensor:
    """Column of the last sampled token of each turn; int64 [B, turns], -1 for a turn without sampled tokens.

    Raises:
        ValueError: a sampled token's turn is negative or not below ``turns``.

    Example: mask ``[[1, 1, 0, 1]]``, turn_index ``[[0, 0, 9, 1]]``, 3 turns give ``[[1, 3, -1]]``.
    """
    check_mask(mask, turn_index)
    turn = torch.where(mask, turn_index, 0)
    if turn.numel() and (int(turn.min()) < 0 or int(turn.max()) >= turns):
        found = f"{int(turn.min())}..{int(turn.max())}"
        raise ValueError(f"turn_index of sampled tokens must lie in 0..{turns - 1}, got {found}")
    columns = torch.arange(mask.shape[1], device=mask.device).expand_as(turn)
    last = torch.full((mask.shape[0], turns), -1, dtype=torch.int64, device=mask.device)
    return last.scatter_reduce(1, turn, torch.where(mask, columns, -1), reduce="amax")


def place_turn_rewards(turn_rewards: Tensor, turn_mask: Tensor, turn_index: Tensor, mask: Tensor) -> Tensor:
    """Put each turn's reward on the last token sampled in that turn.

    A turn without any sampled token (a response emptied by truncation) passes its reward to the last sampled
    token before it, or else to the row's first one: a row that is trained at all keeps its whole return.

    Args:
        turn_rewards: float [B, K].
        turn_mask: bool [B, K].
        turn_index: int64 [B, T].
        mask: bool [B, T].

    Returns:
        float [B, T]; each row sums to its return, or to 0 if it has no sampled token.

    Example: rewards ``[[-0.1, 1.0]]`` with tokens of turns ``0 0 . 1 1 .`` give ``0 -0.1 0 0 1 0``.
    """
    check_mask(turn_mask, turn_rewards)
    rewards = masked(turn_rewards, turn_mask)
    last = last_token_of_turn(mask, turn_index, turn_rewards.shape[1])
    first = mask.to(torch.int8).argmax(dim=1, keepdim=True)
    columns = torch.maximum(last.cummax(dim=1).values, first)
    placed = torch.zeros(mask.shape, dtype=rewards.dtype, device=rewards.device)
    return masked(placed.scatter_add(1, columns, rewards), mask)


@torch.no_grad()
def gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Advantages:
    """Token-level GAE (Schulman et al., arXiv 1506.02438, eq. 16; RAGEN's PPO, arXiv 2504.20073).

    For consecutive sampled tokens t and t' of a row,

        delta_t = r_t + gamma V_t' - V_t,   A_t = delta_t + gamma lam A_t',   R_t = A_t + V_t

    and after the last one V_t' and A_t' are 0: a trajectory that a limit cut off ends there.

    Args:
        token_rewards: float [B, T], see :func:`place_turn_rewards`; entries outside the mask are ignored.
        values: float [B, T], V of the state before the token.
        mask: bool [B, T].
        gamma: discount per sampled token, in [0, 1].
        lam: trace decay, in [0, 1].

    Returns:
        Advantages (not whitened, see :func:`starpo.algorithms.masking.masked_whiten`) and returns, without
        gradient.

    Raises:
        ValueError: gamma or lam outside [0, 1], or shapes that differ.

    Example: rewards ``[[0, 0, 1]]``, values ``[[.5, nan, .25]]``, mask ``[[1, 0, 1]]``, gamma = lam = 1 give
    advantages ``[[.5, 0, .75]]`` and returns ``[[1, 0, 1]]``.
    """
    check_unit_interval(gamma=gamma, lam=lam)
    check_mask(mask, token_rewards, values)
    value = masked(values, mask)
    columns = list(zip(masked(token_rewards, mask).unbind(1), value.unbind(1), mask.unbind(1), strict=True))
    next_value = next_advantage = value.new_zeros(len(value))
    advantages = []
    for reward, here, sampled in reversed(columns):
        advantage = reward + gamma * next_value - here + gamma * lam * next_advantage
        next_advantage = torch.where(sampled, advantage, next_advantage)
        next_value = torch.where(sampled, here, next_value)
        advantages.append(advantage)
    result = masked(torch.stack(advantages[::-1], dim=1), mask) if advantages else value
    return Advantages(result, masked(result + value, mask))

"""GiGPO: a second comparison, between turns of a group that started from the same state (arXiv 2505.10978).

Attempts at one task often pass through the same state. What they did *there* can be compared directly, which
gives credit to a single turn without a critic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from starpo.algorithms.gae import check_unit_interval
from starpo.algorithms.group import GRPO_EPSILON, grpo
from starpo.algorithms.masking import check_mask, masked


def turn_returns(turn_rewards: Tensor, turn_mask: Tensor, *, gamma: float = 0.95) -> Tensor:
    """Discounted return from each turn on: G_k = r_k + gamma G_{k+1}; float [B, K], 0 where there is no turn.

    Example: rewards ``[[0, 1]]``, gamma 0.5 give ``[[0.5, 1]]``.
    """
    check_unit_interval(gamma=gamma)
    check_mask(turn_mask, turn_rewards)
    rewards = masked(turn_rewards, turn_mask)
    following = torch.zeros_like(rewards[:, 0]) if rewards.shape[1] else rewards.sum(1)
    columns = []
    for reward, present in reversed(list(zip(rewards.unbind(1), turn_mask.unbind(1), strict=True))):
        following = torch.where(present, reward + gamma * following, following)
        columns.append(following)
    return masked(torch.stack(columns[::-1], dim=1), turn_mask) if columns else rewards


@torch.no_grad()
def gigpo(
    turn_rewards: Tensor,
    turn_mask: Tensor,
    group_ids: Tensor,
    anchors: Tensor,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    divide_by_std: bool = True,
    epsilon: float = GRPO_EPSILON,
) -> Tensor:
    """GiGPO advantage per turn: A_ik = A^episode_i + step_weight A^step_ik.

    A^episode is :func:`starpo.algorithms.group.grpo` over undiscounted returns in the group of the task;
    A^step is the same over discounted returns from the turn on, in the group of turns with the same anchor. A
    state met once has nothing to compare with and adds 0.

    Args:
        turn_rewards: float [B, K].
        turn_mask: bool [B, K].
        group_ids: integer [B].
        anchors: int64 [B, K], equal where turns of a group started from the same state.
        gamma: discount per turn of the step-level return, in [0, 1].
        step_weight: weight of the step-level part, not negative.
        divide_by_std: whether both parts are divided by their group's standard deviation.
        epsilon: added to the standard deviation.

    Returns:
        float [B, K], 0 where there is no turn; spread it with :func:`turns_to_tokens`.

    Raises:
        ValueError: ``step_weight`` negative, gamma outside [0, 1], or shapes that differ.
    """
    if step_weight < 0:
        raise ValueError(f"step_weight must not be negative, got {step_weight}")
    check_mask(turn_mask, turn_rewards, anchors)
    episode = grpo(
        masked(turn_rewards, turn_mask).sum(dim=1), group_ids, divide_by_std=divide_by_std, epsilon=epsilon
    )
    following = turn_returns(turn_rewards, turn_mask, gamma=gamma)
    step = torch.zeros_like(following)
    step[turn_mask] = grpo(
        following[turn_mask],
        anchors[turn_mask],
        divide_by_std=divide_by_std,
        epsilon=epsilon,
        singletons="zero",
    )
    return masked(episode[:, None] + step_weight * step, turn_mask)


def turns_to_tokens(turn_advantages: Tensor, turn_index: Tensor, mask: Tensor) -> Tensor:
    """Give each sampled token its turn's advantage: float [B, K] -> float [B, T], 0 outside the mask.

    Raises:
        ValueError: a sampled token's turn is not a column of ``turn_advantages``.

    Example: ``[[2., 3.]]`` with tokens of turns ``0 . 1 1`` gives ``[[2, 0, 3, 3]]``.
    """
    check_mask(mask, turn_index)
    turn = torch.where(mask, turn_index, 0)
    turns = turn_advantages.shape[1]
    if turn.numel() and bool(mask.any()) and not 0 <= int(turn.min()) <= int(turn.max()) < turns:
        raise ValueError(
            f"turn_index of sampled tokens must lie in 0..{turns - 1}, got up to {int(turn.max())}"
        )
    if turns == 0:
        return torch.zeros(mask.shape, dtype=turn_advantages.dtype, device=mask.device)
    return masked(turn_advantages.gather(1, turn), mask)

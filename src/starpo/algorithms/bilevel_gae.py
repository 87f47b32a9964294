"""Two-level advantage estimation: over turns first, then over the tokens within each turn.

Flat GAE with gamma lam < 1 fades a reward with every token between it and the decision, so a verbose turn is
worth less than a terse one. Here one discount applies per turn and another per token inside the turn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from starpo.algorithms.gae import Advantages, check_unit_interval, last_token_of_turn
from starpo.algorithms.masking import check_mask, masked


def is_turn_end(mask: Tensor, turn_index: Tensor) -> Tensor:
    """Whether a token is the last one sampled in its turn: bool [B, T].

    Turns come from ``turn_index`` alone, so a turn that earned 0 is a turn like any other.

    Example: mask ``[[1, 1, 0, 1]]``, turn_index ``[[0, 0, 9, 1]]`` give ``[[0, 1, 0, 1]]``.
    """
    check_mask(mask, turn_index)
    turn = torch.where(mask, turn_index, 0)
    turns = int(turn.max()) + 1 if turn.numel() else 0
    columns = torch.arange(mask.shape[1], device=mask.device)
    if turns == 0:
        return mask.clone()
    return mask & (last_token_of_turn(mask, turn_index, turns).gather(1, turn) == columns)


@torch.no_grad()
def bilevel_gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    turn_index: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    turn_gamma: float = 0.95,
    turn_lam: float | None = None,
) -> Advantages:
    """Bi-level GAE (RAGEN, arXiv 2504.20073, appendix on turn-wise estimation).

    Let e_k be the last sampled token of turn k, r_k its reward and V_k its value. Over turns, last to first,

        delta_k = r_k + turn_gamma (V_{k+1} + s_{k+1}) - V_k
        A_k = delta_k + turn_gamma turn_lam A_{k+1}

    where s_{k+1} is the sum of rewards inside turn k + 1 before its last token (0 unless rewards are given
    there, such as a KL penalty per token). Then inside turn k, from token t to the next sampled token t',

        A_{e_k} = A_k,   A_t = r_t + gamma V_t' - V_t + gamma lam A_t',   R_t = A_t + V_t

    so a turn's last token carries the turn's advantage, and the tokens before it are credited towards it.
    With a single turn this is :func:`starpo.algorithms.gae.gae`; so it is for any number of turns if all four
    factors are 1.

    Args:
        token_rewards: float [B, T], see :func:`starpo.algorithms.gae.place_turn_rewards`; entries outside the
            mask are ignored.
        values: float [B, T].
        mask: bool [B, T].
        turn_index: int64 [B, T], not decreasing along the sampled tokens of a row.
        gamma: discount per sampled token inside a turn, in [0, 1].
        lam: trace decay inside a turn, in [0, 1].
        turn_gamma: discount per turn, in [0, 1] (RAGEN: 0.95).
        turn_lam: trace decay over turns, in [0, 1]; ``lam`` by default.

    Returns:
        Advantages (not whitened) and returns, without gradient.

    Raises:
        ValueError: a factor outside [0, 1], negative turns, or shapes that differ.

    Example: one token per turn, rewards ``[[0, 1]]``, values 0, turn_gamma = 0.5 and lam = 1 give advantages
    ``[[0.5, 1]]``; as two tokens of one turn with gamma = 1 they would be ``[[1, 1]]``.
    """
    turn_lam = lam if turn_lam is None else turn_lam
    check_unit_interval(gamma=gamma, lam=lam, turn_gamma=turn_gamma, turn_lam=turn_lam)
    check_mask(mask, token_rewards, values)
    ends = is_turn_end(mask, turn_index)
    value, reward = masked(values, mask), masked(token_rewards, mask)
    columns = list(zip(reward.unbind(1), value.unbind(1), mask.unbind(1), ends.unbind(1), strict=True))

    # V_{k+1} + s_{k+1}, accumulated while the scan passes through turn k + 1.
    next_turn_value = next_turn_advantage = next_value = next_advantage = value.new_zeros(len(value))
    advantages = []
    for r, v, sampled, end in reversed(columns):
        turn_advantage = r + turn_gamma * next_turn_value - v + turn_gamma * turn_lam * next_turn_advantage
        token_advantage = r + gamma * next_value - v + gamma * lam * next_advantage
        advantage = torch.where(end, turn_advantage, token_advantage)
        next_turn_value = torch.where(end, v, next_turn_value + r)
        next_turn_advantage = torch.where(end, turn_advantage, next_turn_advantage)
        next_value = torch.where(sampled, v, next_value)
        next_advantage = torch.where(sampled, advantage, next_advantage)
        advantages.append(advantage)
    result = masked(torch.stack(advantages[::-1], dim=1), mask) if advantages else value
    return Advantages(result, masked(result + value, mask))

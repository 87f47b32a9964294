"""The estimators once more, as plain loops over one row of Python floats: slow, obvious, independent."""

from __future__ import annotations

import math

Row = list[float]


def sampled_positions(mask_row: list[bool]) -> list[int]:
    return [t for t, sampled in enumerate(mask_row) if sampled]


def rewards_on_sampled_tokens(rewards: Row, mask_row: list[bool]) -> Row:
    """Move each reward on a context token to the sampled token before it (else to the first one)."""
    positions = sampled_positions(mask_row)
    placed = [0.0] * len(rewards)
    for t, reward in enumerate(rewards):
        before = [p for p in positions if p <= t]
        if before:
            placed[before[-1]] += reward
        elif positions:
            placed[positions[0]] += reward
    return placed


def gae_row(rewards: Row, values: Row, mask_row: list[bool], *, gamma: float, lam: float) -> Row:
    """Sum of (gamma lam)^l delta_{t+l} over the sampled tokens, written out as a double sum."""
    positions = sampled_positions(mask_row)
    following = [values[p] for p in positions[1:]] + [0.0]
    deltas = (
        [rewards[p] + gamma * after - values[p] for p, after in zip(positions, following, strict=True)]
        if positions
        else []
    )
    result = [0.0] * len(rewards)
    for i, p in enumerate(positions):
        result[p] = sum((gamma * lam) ** (j - i) * deltas[j] for j in range(i, len(positions)))
    return result


def bilevel_gae_row(
    rewards: Row,
    values: Row,
    mask_row: list[bool],
    turns: list[int],
    *,
    gamma: float,
    lam: float,
    turn_gamma: float,
    turn_lam: float,
) -> Row:
    """A list of turns first, then each turn's tokens backwards from its last one."""
    spans: list[list[int]] = []
    for p in sampled_positions(mask_row):
        if spans and turns[spans[-1][0]] == turns[p]:
            spans[-1].append(p)
        else:
            spans.append([p])
    deltas = []
    for k, span in enumerate(spans):
        if k + 1 < len(spans):
            *inner, end = spans[k + 1]
            after = values[end] + sum(rewards[p] for p in inner)
        else:
            after = 0.0
        deltas.append(rewards[span[-1]] + turn_gamma * after - values[span[-1]])
    result = [0.0] * len(rewards)
    for k, span in enumerate(spans):
        result[span[-1]] = sum((turn_gamma * turn_lam) ** (j - k) * deltas[j] for j in range(k, len(spans)))
        for p, after in zip(reversed(span[:-1]), reversed(span[1:]), strict=True):
            result[p] = rewards[p] + gamma * values[after] - values[p] + gamma * lam * result[after]
    return result


def discounted_row(rewards: Row, mask_row: list[bool], gamma: float) -> Row:
    positions = sampled_positions(mask_row)
    result = [0.0] * len(rewards)
    for i, p in enumerate(positions):
        result[p] = sum(gamma ** (j - i) * rewards[q] for j, q in enumerate(positions) if j >= i)
    return result


def members(groups: list[int], i: int) -> list[int]:
    return [j for j, group in enumerate(groups) if group == groups[i]]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def std(values: list[float]) -> float:
    centre = mean(values)
    return (
        math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))
        if len(values) > 1
        else 0.0
    )


def grpo_loop(
    returns: list[float], groups: list[int], divide_by_std: bool, epsilon: float = 1e-6
) -> list[float]:
    result = []
    for i, value in enumerate(returns):
        group = [returns[j] for j in members(groups, i)]
        if len(group) == 1:
            result.append(value)
        else:
            result.append((value - mean(group)) / (std(group) + epsilon if divide_by_std else 1.0))
    return result


def rloo_loop(returns: list[float], groups: list[int]) -> list[float]:
    result = []
    for i, value in enumerate(returns):
        others = [returns[j] for j in members(groups, i) if j != i]
        result.append(value - mean(others) if others else value)
    return result


def whiten_loop(rows: list[Row], mask: list[list[bool]], epsilon: float = 1e-8) -> list[Row]:
    kept = [
        v for row, sampled in zip(rows, mask, strict=True) for v, m in zip(row, sampled, strict=True) if m
    ]
    if not kept:
        return [[0.0] * len(row) for row in rows]
    centre, scale = mean(kept), math.sqrt(std(kept) ** 2 + epsilon)
    return [
        [(v - centre) / scale if m else 0.0 for v, m in zip(row, sampled, strict=True)]
        for row, sampled in zip(rows, mask, strict=True)
    ]

"""Exact answers about a frozen lake: shortest paths without slips, the best chance of success with them.

With slips there are two questions. *Closed loop*: each move is chosen after seeing the last one's outcome.
*Blind blocks*: an agent names several actions per turn and sees the lake only between turns. Both are one
dynamic program over (turns left, actions left, cell), in which a turn is a fixed sequence of actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np

from starpo.environments.frozen_lake import ACTIONS, FROZEN, GOAL, FrozenLake, Lake, neighbours

#: Values closer than this are equal; among equals the shortest block of the earliest actions is taken.
TIE: Final = 1e-12
#: All blocks of 5 actions on 8 x 8 cells take 4**5 * 64 * 64 * 8 bytes = 34 MB; longer ones would not fit.
MAX_BLOCK: Final = 5


@dataclass(frozen=True)
class LakePaths:
    """Shortest paths on ice that does not slip."""

    distances: dict[int, int]  # cell -> moves to the goal; cells that cannot reach it are absent
    optimal: dict[int, tuple[str, ...]]  # cell -> the actions that start a shortest path; none at the goal


@dataclass(frozen=True)
class LakePlan:
    """The best block of actions to play blindly now, and what it is worth."""

    value: float  # chance to reach the goal when every later turn is played as well as possible
    block: tuple[str, ...]  # this turn's actions; empty if the episode or the limits are over


def solve_frozen_lake(lake: FrozenLake | Lake | str) -> LakePaths:
    """Breadth-first distances to the goal and the optimal actions of every cell, as if moves never slipped.

    >>> solve_frozen_lake("P_\\nOG").distances
    {3: 0, 1: 1, 0: 2}
    """
    lake = as_lake(lake)
    table = neighbours(lake.size)
    distances = {lake.goal: 0}
    frontier = [lake.goal]
    for cell in frontier:  # grows while it is walked
        # A move's reverse is a move, so walking outwards from the goal measures the way to it.
        for each in table[cell]:
            if each not in distances and lake.cells[each] == FROZEN:
                distances[each] = distances[cell] + 1
                frontier.append(each)
    optimal = {
        cell: tuple(
            action
            for action, target in zip(ACTIONS, table[cell], strict=True)
            if distances.get(target, math.inf) < distance
        )
        for cell, distance in distances.items()
    }
    return LakePaths(distances, optimal)


def shortest_path(lake: FrozenLake | Lake | str) -> list[str]:
    """The actions of one shortest path from the player to the goal; empty if there is none or it is over."""
    lake = as_lake(lake)
    paths = solve_frozen_lake(lake)
    cell, actions = lake.player, []
    while choices := paths.optimal.get(cell, ()):
        actions.append(choices[0])
        cell = neighbours(lake.size)[cell][ACTIONS.index(choices[0])]
    return actions


def plan_frozen_lake(
    lake: FrozenLake | Lake | str,
    *,
    success_probability: float | None = None,
    turns: int = 5,
    actions_per_turn: int = 5,
    total_actions: int | None = None,
    min_actions_per_turn: int = 1,
) -> LakePlan:
    """The best play under limits: at most ``turns`` turns of blind blocks, at most ``total_actions`` in all.

    A block has ``min_actions_per_turn`` to ``actions_per_turn`` actions and stops early on the goal or in a
    hole. ``actions_per_turn=1`` gives the closed-loop optimum over ``turns`` moves. The slip law is that of
    the environment unless ``success_probability`` is given, which a board text needs.
    """
    law = _slip_law(lake, success_probability)
    lake = as_lake(lake)
    if not 1 <= min_actions_per_turn <= actions_per_turn <= MAX_BLOCK:
        raise ValueError(
            f"plan_frozen_lake: actions per turn {min_actions_per_turn} to {actions_per_turn}, "
            f"allowed: 1 to {MAX_BLOCK}"
        )
    blocks = _blocks(lake.cells, lake.size, law, actions_per_turn)
    lengths = range(min_actions_per_turn, actions_per_turn + 1)
    reached = _reached(lake)

    @cache
    def value(turns_left: int, actions_left: int) -> np.ndarray:  # [cells]
        if turns_left == 0 or actions_left < min_actions_per_turn:
            return reached
        return np.max(
            [(blocks[k] @ after(turns_left, actions_left, k)).max(0) for k in lengths if k <= actions_left],
            axis=0,
        )

    def after(turns_left: int, actions_left: int, used: int) -> np.ndarray:
        # More actions than the turns can hold are as good as exactly enough: fewer distinct states.
        return value(turns_left - 1, min(actions_left - used, (turns_left - 1) * actions_per_turn))

    budget = min(math.inf if total_actions is None else total_actions, turns * actions_per_turn)
    best = LakePlan(float(reached[lake.player]), ())
    if lake.over or turns == 0:
        return best
    for length in lengths:
        if length <= budget:
            values = blocks[length][:, lake.player] @ after(turns, int(budget), length)
            top = int(np.argmax(values >= values.max() - TIE))
            if not best.block or values[top] > best.value + TIE:
                best = LakePlan(float(values[top]), _block_names(top, length))
    return best


def likely_path(
    lake: FrozenLake | Lake | str, *, success_probability: float | None = None, horizon: int
) -> list[str]:
    """The closed-loop optimal action now, then those along the most likely outcomes of ``horizon`` moves.

    Outcomes that are equally likely (all three at the default 1/3) are taken as hoped for: the best one. The
    path ends at the goal, and after a move that leaves the player in place, since the next outcome decides.
    """
    law = _slip_law(lake, success_probability)
    lake = as_lake(lake)
    moves = _blocks(lake.cells, lake.size, law, 1)[1]
    values = [_reached(lake)]
    for _ in range(horizon):
        values.append((moves @ values[-1]).max(0))
    chances = ((1 - law) / 2, law, (1 - law) / 2)
    cell, actions = lake.player, []
    for left in range(horizon, 0, -1):
        if lake.cells[cell] != FROZEN:
            break
        worth = moves[:, cell] @ values[left - 1]
        action = int(np.argmax(worth >= worth.max() - TIE))
        actions.append(ACTIONS[action])
        targets = [neighbours(lake.size)[cell][(action + turn) % 4] for turn in (-1, 0, 1)]
        likely = [
            target for target, chance in zip(targets, chances, strict=True) if chance >= max(chances) - TIE
        ]
        following = max(likely, key=lambda target: values[left - 1][target])
        if following == cell:
            break
        cell = following
    return actions


def as_lake(lake: FrozenLake | Lake | str) -> Lake:
    """The lake of an environment's present state or of a board text."""
    if isinstance(lake, Lake):
        return lake
    return Lake.parse(lake.board if isinstance(lake, FrozenLake) else lake)


def _slip_law(lake: FrozenLake | Lake | str, success_probability: float | None) -> float:
    if success_probability is not None:
        return success_probability
    if isinstance(lake, FrozenLake):
        return lake.success_probability
    raise ValueError("a board alone has no slip law: give success_probability")


def _reached(lake: Lake) -> np.ndarray:
    """[cells], 1 at the goal, else 0: the chance of success when no more action may follow."""
    return np.array([float(ground == GOAL) for ground in lake.cells])


@lru_cache(maxsize=16)
def _blocks(cells: str, size: int, success_probability: float, longest: int) -> dict[int, np.ndarray]:
    """``[k][block, cell, next cell]``: chances after each of the 4**k blocks of k actions, k = 1 to longest.

    Block numbers are the actions as base-4 digits, the first action leading. Goal and holes are absorbing.
    """
    side = (1 - success_probability) / 2
    single = np.zeros((4, size * size, size * size))
    for cell, targets in enumerate(neighbours(size)):
        for action in range(4):
            if cells[cell] != FROZEN:
                single[action, cell, cell] = 1.0
                continue
            single[action, cell, targets[action]] += success_probability
            single[action, cell, targets[action - 1]] += side
            single[action, cell, targets[(action + 1) % 4]] += side
    blocks = {1: single}
    for length in range(2, longest + 1):
        chained = blocks[length - 1][:, None] @ single[None]
        blocks[length] = chained.reshape(-1, size * size, size * size)
    return blocks


def _block_names(number: int, length: int) -> tuple[str, ...]:
    return tuple(ACTIONS[number // 4**place % 4] for place in reversed(range(length)))

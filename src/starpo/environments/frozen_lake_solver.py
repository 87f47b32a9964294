"""Exact answers about a frozen lake: shortest paths without slips, the best chance of success with them.

With slips there are two questions. *Closed loop*: each move is chosen after seeing the last one's outcome.
*Blind blocks*: an agent names several actions per turn and sees the lake only between turns. Both are one
dynamic program over (turns left, actions left, cell), in which a turn is a fixed sequence of actions.

Everything with slips rests on one step backwards in time, :class:`_Ice`: from the worth of every cell after a
move to its worth before the move, for each action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from starpo.environments.frozen_lake import ACTIONS, FROZEN, GOAL, FrozenLake, Lake, neighbours
from starpo.environments.records import Expectation, Limits

#: Values closer than this are equal; among equals the shortest block of the earliest actions is taken.
TIE: Final = 1e-12
#: Blocks of k actions are 4**k; each action more takes four times as long. RAGEN's agents name up to 5.
MAX_BLOCK: Final = 7
#: Fewest moves that a slippery lake's plan looks ahead: the paper's action budget per episode.
SLIPPERY_HORIZON: Final = 10


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
    ice = _Ice(as_lake(lake), _slip_law(lake, success_probability))
    lake = ice.lake
    if not 1 <= min_actions_per_turn <= actions_per_turn <= MAX_BLOCK:
        raise ValueError(
            f"plan_frozen_lake: actions per turn {min_actions_per_turn} to {actions_per_turn}, "
            f"allowed: 1 to {MAX_BLOCK}"
        )

    def lengths(turns_left: int, actions_left: int) -> range:
        longest = min(actions_per_turn, actions_left)
        if min_actions_per_turn == 1:
            # After a longer block there would be turns without an action: its first action could have had one
            # of them for itself, which is at least as good, since the rest may then follow what it led to.
            longest = min(longest, max(1, actions_left - turns_left + 1))
        return range(min_actions_per_turn, longest + 1)

    @cache
    def value(turns_left: int, actions_left: int) -> np.ndarray:  # [cells]
        if turns_left == 0 or actions_left < min_actions_per_turn:
            return ice.reached
        chosen = lengths(turns_left, actions_left)
        return np.max([blocks(*after(turns_left, actions_left, k)).best(k) for k in chosen], axis=0)

    @cache
    def blocks(turns_left: int, actions_left: int) -> _Blocks:
        return _Blocks(ice, value(turns_left, actions_left))

    def after(turns_left: int, actions_left: int, used: int) -> tuple[int, int]:
        # More actions than the turns can hold are as good as exactly enough: fewer distinct states.
        return turns_left - 1, min(actions_left - used, (turns_left - 1) * actions_per_turn)

    budget = int(min(math.inf if total_actions is None else total_actions, turns * actions_per_turn))
    plan = LakePlan(float(ice.reached[lake.player]), ())
    if lake.over or turns == 0:
        return plan
    for length in lengths(turns, budget):
        values = blocks(*after(turns, budget, length)).worth(length)[lake.player]
        top = int(np.argmax(values >= values.max() - TIE))
        if not plan.block or values[top] > plan.value + TIE:
            plan = LakePlan(float(values[top]), _block_names(top, length))
    return plan


def random_walk(
    lake: FrozenLake | Lake | str, *, success_probability: float | None = None, moves: int
) -> float:
    """Chance that ``moves`` actions drawn uniformly lead to the goal, stopping there or in a hole."""
    ice = _Ice(as_lake(lake), _slip_law(lake, success_probability))
    values = ice.reached[:, None]
    for _ in range(moves):
        values = ice.before(values).mean(1)
    return float(values[ice.lake.player, 0])


def chance_of(
    lake: FrozenLake | Lake | str, actions: Sequence[str], *, success_probability: float | None = None
) -> float:
    """Chance that these actions, played without looking, lead to the goal; the walk stops there or in a hole.

    >>> round(chance_of("P_\\n_G", ["Right", "Down"], success_probability=1 / 3), 3)
    0.222
    """
    ice = _Ice(as_lake(lake), _slip_law(lake, success_probability))
    values = ice.reached[:, None]
    for action in reversed(actions):
        values = ice.before(values)[:, ACTIONS.index(action)]
    return float(values[ice.lake.player, 0])


def likely_path(
    lake: FrozenLake | Lake | str, *, success_probability: float | None = None, horizon: int
) -> list[str]:
    """The closed-loop optimal action now, then those along the most likely outcomes of ``horizon`` moves.

    Outcomes that are equally likely (all three at the default 1/3) are taken as hoped for: the best one. The
    path ends at the goal, and after a move that leaves the player in place, since the next outcome decides.
    """
    law = _slip_law(lake, success_probability)
    lake = as_lake(lake)
    ice = _Ice(lake, law)
    worths: list[np.ndarray] = []  # [moves left - 1][cell, action]
    values = [ice.reached]
    for _ in range(horizon):
        worths.append(ice.before(values[-1][:, None])[..., 0])
        values.append(worths[-1].max(1))
    chances = ((1 - law) / 2, law, (1 - law) / 2)
    cell, actions = lake.player, []
    for left in range(horizon, 0, -1):
        if lake.cells[cell] != FROZEN:
            break
        worth = worths[left - 1][cell]
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


def crossing(lake: FrozenLake) -> list[str]:
    """The plan that a demonstrator follows: :func:`shortest_path`, on slippery ice :func:`likely_path`.

    For blocks of actions that are optimal under the harness's limits see :func:`plan_frozen_lake`.
    """
    path = shortest_path(lake)
    if lake.success_probability == 1 or not path:
        return path
    # Slips make detours: twice the shortest path lets the optimum be careful on large lakes.
    return likely_path(lake, horizon=max(SLIPPERY_HORIZON, 2 * len(path)))


def best_crossing(lake: FrozenLake, limits: Limits) -> Expectation | None:
    """The best under the limits; None on slippery ice where a turn may have more than ``MAX_BLOCK`` actions."""
    longest = min(limits.actions_per_turn, limits.moves)
    if lake.success_probability == 1:
        chance = float(0 < len(shortest_path(lake)) <= limits.moves)
    elif longest <= MAX_BLOCK:
        chance = plan_frozen_lake(
            lake, turns=limits.turns, actions_per_turn=longest, total_actions=limits.actions
        ).value
    else:
        return None
    return Expectation(chance, chance)


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


class _Ice:
    """A lake with its slip law, and the worth of cells one move earlier."""

    def __init__(self, lake: Lake, success_probability: float) -> None:
        self.lake = lake
        self._straight = success_probability
        self._side = (1 - success_probability) / 2
        self._targets = np.array(neighbours(lake.size)).T  # [action, cell]
        self._over = np.array([ground != FROZEN for ground in lake.cells])
        #: [cell], 1 at the goal, else 0: the chance of success when no more action may follow.
        self.reached = np.array([float(ground == GOAL) for ground in lake.cells])

    def before(self, values: np.ndarray) -> np.ndarray:
        """``[cell, n]`` after a move -> ``[cell, action, n]`` before it. Goal and holes are absorbing."""
        there = [values[targets] for targets in self._targets]
        earlier = np.empty((len(values), len(ACTIONS), values.shape[1]))
        for action in range(len(ACTIONS)):
            if self._straight == 1:
                earlier[:, action] = there[action]
                continue
            sides = there[action - 1] + there[(action + 1) % 4]
            sides *= self._side
            sides += self._straight * there[action]
            earlier[:, action] = sides
        earlier[self._over] = values[self._over, None]
        return earlier


class _Blocks:
    """What blocks of actions are worth, given the worth of cells after them; longer ones grow from shorter ones.

    Block numbers are the actions as base-4 digits, the first action leading.
    """

    def __init__(self, ice: _Ice, values: np.ndarray) -> None:
        self._ice = ice
        self._worths = [values[:, None]]
        self._best: dict[int, np.ndarray] = {}

    def worth(self, length: int) -> np.ndarray:
        """``[cell, block]`` for each of the 4**length blocks."""
        while len(self._worths) <= length:
            earlier = self._ice.before(self._worths[-1])
            self._worths.append(earlier.reshape(len(earlier), -1))
        return self._worths[length]

    def best(self, length: int) -> np.ndarray:
        """``[cell]``, of the best block of that length."""
        if length not in self._best:
            self._best[length] = self.worth(length).max(1)
        return self._best[length]


def _block_names(number: int, length: int) -> tuple[str, ...]:
    return tuple(ACTIONS[number // 4**place % 4] for place in reversed(range(length)))

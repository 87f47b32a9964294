"""Progress is potential-based: it telescopes, and no optimal policy changes."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import KNOWN, OPEN, SHUT, trajectory, turn, values

from starpo.environments.frozen_lake import ACTIONS, FROZEN, GOAL, PLAYER, Lake, neighbours

BOARD = Lake.parse(OPEN)
GAMMA = 0.9
STRAIGHT = 0.8
"""Chance that a move of the small MDP goes as chosen; else to one of the sides."""


def shown(cell: int) -> str:
    """The board with the player on an ice cell."""
    cells = BOARD.cells[:cell] + PLAYER + BOARD.cells[cell + 1 :]
    return "\n".join(cells[row : row + BOARD.size] for row in range(0, len(cells), BOARD.size))


ICE = [cell for cell, ground in enumerate(BOARD.cells) if ground == FROZEN]


def test_a_step_towards_the_goal_is_worth_one_and_the_end_closes_the_account():
    judged = trajectory(turn(observation=shown(0)), turn(observation=shown(3)), turn(observation=shown(5)))
    # Four, three and one moves from the goal.
    assert values("progress", judged) == [1, 2, 1]
    assert values("progress", judged, scale=2.0) == [0.5, 1, 0.5]
    assert values("progress", judged, gamma=0.5) == pytest.approx([4 - 1.5, 3 - 0.5, 1])


def test_what_is_out_of_reach_has_a_finite_potential_and_what_nobody_knows_has_none():
    judged = trajectory(turn(observation=SHUT), turn(observation="fog"))
    assert KNOWN.distance("frozen_lake", SHUT) == math.inf
    assert values("progress", judged, hopeless=7.0) == [7, 0]


@given(st.lists(st.sampled_from([*map(shown, ICE), SHUT, "fog"]), min_size=1, max_size=8), st.floats(0, 1))
def test_the_discounted_sum_is_the_potential_of_the_first_state_whatever_way_was_taken(seen, gamma):
    shaping = values("progress", trajectory(*[turn(observation=each) for each in seen]), gamma=gamma)
    total = sum(gamma**number * each for number, each in enumerate(shaping))
    distance = KNOWN.distance("frozen_lake", seen[0])
    expected = 0.0 if distance is None else min(distance, 100.0)
    assert total == pytest.approx(expected, abs=1e-9)


def moves(cell: int, action: int) -> list[tuple[float, int]]:
    """Chance and cell of each outcome."""
    side = (1 - STRAIGHT) / 2
    table = neighbours(BOARD.size)[cell]
    return [(chance, table[(action + off) % 4]) for chance, off in ((STRAIGHT, 0), (side, -1), (side, 1))]


def optimal(shaping: dict[tuple[int, int], float]) -> dict[int, set[str]]:
    """Optimal actions of every ice cell for the lake's reward plus ``shaping[cell, next cell]``, by value iteration."""
    value = dict.fromkeys(range(len(BOARD.cells)), 0.0)

    def worth(cell: int, action: int) -> float:
        return sum(
            chance * (float(BOARD.cells[to] == GOAL) + shaping[cell, to] + GAMMA * value[to])
            for chance, to in moves(cell, action)
        )

    for _ in range(400):
        value |= {cell: max(worth(cell, action) for action in range(4)) for cell in ICE}
    best = {cell: max(worth(cell, action) for action in range(4)) for cell in ICE}
    return {
        cell: {name for number, name in enumerate(ACTIONS) if worth(cell, number) > best[cell] - 1e-9}
        for cell in ICE
    }


def transitions() -> list[tuple[int, int]]:
    return sorted(
        {(cell, to) for cell, action in itertools.product(ICE, range(4)) for _, to in moves(cell, action)}
    )


def test_optimal_policies_of_a_small_mdp_stay_as_they_are():
    shaped = {}
    for cell, to in transitions():
        on_ice = [turn(observation=shown(to))] if to in ICE else []
        shaped[cell, to] = values(
            "progress", trajectory(turn(observation=shown(cell)), *on_ice), gamma=GAMMA, scale=0.3
        )[0]
    plain = dict.fromkeys(shaped, 0.0)
    assert any(abs(each) > 1 for each in shaped.values())
    assert optimal(shaped) == optimal(plain)
    # The comparison can tell: a bonus for being near the goal, which is no difference of potentials, changes them.
    near = {
        (cell, to): 2.0 / (1 + KNOWN.distance("frozen_lake", shown(to))) if to in ICE else 0.0
        for cell, to in shaped
    }
    assert optimal(near) != optimal(plain)

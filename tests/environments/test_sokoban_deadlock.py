"""Dead squares and deadlocks, against searches that use no shortcut."""

from __future__ import annotations

import dataclasses

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.registry import make
from starpo.environments.sokoban_deadlock import dead_squares, first_deadlock, is_deadlocked
from starpo.environments.sokoban_room import ACTIONS, Room, cells_of
from starpo.environments.sokoban_solver import successors

seeds = st.integers(0, 2**32)


def solvable(room: Room) -> bool:
    """Whether some sequence of moves solves it, by visiting every state."""
    seen = {(room.player, room.boxes)}
    frontier = list(seen)
    while frontier:
        state = frontier.pop()
        if state[1] == room.targets:
            return True
        for following in successors(room, state):
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    return False


@given(seed=seeds)
@examples(0.15)
def test_a_lone_box_on_a_dead_square_reaches_no_target_from_anywhere_and_on_others_it_does(seed):
    env = make("sokoban")
    env.reset(seed=seed)
    room = env.room
    dead = cells_of(dead_squares(room))
    for box in cells_of(room.floor):
        reaches = any(
            solvable(dataclasses.replace(room, boxes=1 << box, player=player))
            for player in cells_of(room.floor & ~(1 << box))
        )
        # A square may be alive for a pull and yet unreachable for the pusher, never the other way round.
        assert not (reaches and box in dead)
        if not reaches and box not in dead:
            assert all(
                is_deadlocked(dataclasses.replace(room, boxes=1 << box, player=player))
                for player in cells_of(room.floor & ~(1 << box))
            )


@given(
    seed=seeds,
    moves=st.lists(st.sampled_from(ACTIONS), max_size=12),
    name=st.sampled_from(["sokoban", "sokoban_large"]),
)
@examples(0.25)
def test_the_sealing_move_is_the_first_after_which_no_search_finds_a_solution(seed, moves, name):
    env = make(name)
    env.reset(seed=seed)
    rooms = []
    for move in moves:
        *_, terminated, _, _ = env.step(move)
        rooms.append(env.room)
        if terminated:
            break
    lost = [number for number, room in enumerate(rooms) if not solvable(room)]
    assert first_deadlock(rooms) == (lost[0] if lost else None)
    assert lost == list(range(lost[0], len(rooms))) if lost else True, "a deadlock stays one"


@pytest.mark.parametrize(
    ("board", "dead"),
    [
        ("#####\n#X_P#\n#__O#\n#####", True),  # in a corner
        ("#####\n#PXO#\n#####", False),
        ("#####\n#√_P#\n#___#\n#####", False),  # solved
        ("######\n#P___#\n#XX__#\n#XXOO#\n#OO__#\n######", True),  # four in a square, on no target
        ("#######\n#P____#\n#_XX__#\n#_OO__#\n#_____#\n#######", False),
    ],
)
def test_known_positions(board, dead):
    assert is_deadlocked(board) is dead


def test_a_room_too_large_to_search_is_not_called_dead():
    frozen = "######\n#P___#\n#XX__#\n#XXOO#\n#OO__#\n######"
    assert is_deadlocked(frozen)
    assert not is_deadlocked(frozen, search_states=3)


def test_an_episode_without_a_deadlock_or_without_a_step_has_no_sealing_move():
    env = make("sokoban")
    env.reset(seed=0)
    assert first_deadlock([]) is None
    assert first_deadlock([env.room]) is None

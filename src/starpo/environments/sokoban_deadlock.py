"""Sokoban positions from which no sequence of moves, however long, solves the room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_room import Room
from starpo.environments.sokoban_solver import as_room, live_cells, solve_sokoban

#: States that the search for a solution may visit: seconds. Rooms of the built-in sizes need a thousandth.
SEARCH_STATES: Final = 200_000


def dead_squares(room: Sokoban | Room | str) -> int:
    """Floor cells, as bits, from which no push sequence brings even a lone box to a target: corners and the like.

    Found backwards, by pulling a box from every target.

    >>> from starpo.environments.sokoban_room import cells_of
    >>> cells_of(dead_squares("######\\n#P_XO#\\n######"))
    [8]
    """
    room = as_room(room)
    return room.floor & ~live_cells(room)


def is_deadlocked(room: Sokoban | Room | str, *, search_states: int = SEARCH_STATES) -> bool:
    """Whether the room cannot be solved any more, whatever the limits on turns and actions.

    A box on a dead square decides at once; else all states that can be reached are searched. In a room with
    more than ``search_states`` of them the answer is False: nothing is proven.
    """
    room = as_room(room)
    if room.boxes & dead_squares(room):
        return True
    try:
        return solve_sokoban(room, max_states=search_states) is None
    except RuntimeError:
        return False


def first_deadlock(rooms: Sequence[Room], *, search_states: int = SEARCH_STATES) -> int | None:
    """Index of the first deadlocked room in the course of one episode, or None.

    A deadlock stays one, so that the first is found by bisection.
    """
    if not rooms or not is_deadlocked(rooms[-1], search_states=search_states):
        return None
    alive, dead = -1, len(rooms) - 1
    while dead - alive > 1:
        middle = (alive + dead) // 2
        if is_deadlocked(rooms[middle], search_states=search_states):
            dead = middle
        else:
            alive = middle
    return dead

"""Shortest solutions of Sokoban rooms."""

from __future__ import annotations

from typing import Final

from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_room import ACTIONS, Room, cells_of

#: States visited before giving up: some hundred megabytes. Rooms of the built-in sizes need far fewer.
MAX_STATES: Final = 2_000_000


def solve_sokoban(room: Sokoban | Room | str, *, max_states: int = MAX_STATES) -> list[str] | None:
    """A solution with the fewest moves, pushing or not; empty if already solved, None if there is none.

    Breadth-first search over (player, boxes) that leaves out states with a box on a cell from which no target
    can be reached. A text must use the standard symbols. Raises ``RuntimeError`` beyond ``max_states``.

    >>> solve_sokoban("#####\\n#PXO#\\n#####")
    ['Right']
    """
    if isinstance(room, str):
        room = Room.parse(room)
    elif isinstance(room, Sokoban):
        room = room.room
    targets, floor = room.targets, room.floor
    if room.solved:
        return []
    live = _live_cells(room)
    start = (room.player, room.boxes)
    came_from: dict[tuple[int, int], tuple[tuple[int, int], int]] = {start: (start, -1)}
    queue = [start]
    for state in queue:  # grows while it is walked
        player, boxes = state
        for action, delta in enumerate(room.deltas):
            ahead = player + delta
            following = (ahead, boxes)
            if boxes >> ahead & 1:
                beyond = ahead + delta
                if not live >> beyond & 1 or boxes >> beyond & 1:
                    continue
                following = (ahead, boxes ^ (1 << ahead) ^ (1 << beyond))
            elif not floor >> ahead & 1:
                continue
            if following in came_from:
                continue
            came_from[following] = (state, action)
            if following[1] == targets:
                return _trace(came_from, following)
            queue.append(following)
        if len(queue) > max_states:
            raise RuntimeError(f"solve_sokoban: no solution within {max_states} states")
    return None


def _live_cells(room: Room) -> int:
    """Cells, as bits, from which a lone box can be pushed to a target: found by pulling from the targets."""
    live = room.targets
    frontier = cells_of(live)
    for cell in frontier:  # grows while it is walked
        for delta in room.deltas:
            pulled, player = cell + delta, cell + 2 * delta
            if room.floor >> pulled & 1 and room.floor >> player & 1 and not live >> pulled & 1:
                live |= 1 << pulled
                frontier.append(pulled)
    return live


def _trace(
    came_from: dict[tuple[int, int], tuple[tuple[int, int], int]], state: tuple[int, int]
) -> list[str]:
    actions: list[str] = []
    while (step := came_from[state])[1] >= 0:
        actions.append(ACTIONS[step[1]])
        state = step[0]
    return actions[::-1]

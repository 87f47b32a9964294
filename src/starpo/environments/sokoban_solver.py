"""Shortest solutions of Sokoban rooms, the best return within a number of moves, and what random play earns."""

from __future__ import annotations

from typing import Final

from starpo.environments.sokoban import (
    BOX_OFF_TARGET_REWARD,
    BOX_ON_TARGET_REWARD,
    FINISHED_REWARD,
    STEP_REWARD,
    Sokoban,
)
from starpo.environments.sokoban_room import ACTIONS, Room, cells_of

#: The player's cell and the boxes' cells as bits.
State = tuple[int, int]

#: States visited before giving up: some hundred megabytes. Rooms of the built-in sizes need far fewer.
MAX_STATES: Final = 2_000_000


def solve_sokoban(room: Sokoban | Room | str, *, max_states: int = MAX_STATES) -> list[str] | None:
    """A solution with the fewest moves, pushing or not; empty if already solved, None if there is none.

    Breadth-first search over (player, boxes) that leaves out states with a box on a cell from which no target
    can be reached. A text must use the standard symbols. Raises ``RuntimeError`` beyond ``max_states``.

    >>> solve_sokoban("#####\\n#PXO#\\n#####")
    ['Right']
    """
    room = as_room(room)
    targets, floor = room.targets, room.floor
    if room.solved:
        return []
    live = live_cells(room)
    start = (room.player, room.boxes)
    came_from: dict[State, tuple[State, int]] = {start: (start, -1)}
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


def best_within(room: Sokoban | Room | str, moves: int) -> tuple[bool, float]:
    """Whether ``moves`` moves can solve the room, and the largest return they can give.

    A solution of the fewest moves is worth most: finishing outweighs all else. Without one, boxes brought onto
    targets on the way count, and doing nothing earns 0.
    """
    room = as_room(room)
    before = (room.boxes & room.targets).bit_count()
    solution = solve_sokoban(room)
    if solution is not None and len(solution) <= moves:
        gained = (room.boxes.bit_count() - before) * BOX_ON_TARGET_REWARD
        return True, len(solution) * STEP_REWARD + gained + (FINISHED_REWARD if solution else 0.0)
    best = 0.0
    seen = {(room.player, room.boxes)}
    layer = list(seen)
    for depth in range(1, moves + 1):
        reached = {following for state in layer for following in successors(room, state)} - seen
        seen |= reached
        layer = list(reached)
        for _, boxes in layer:
            gained = _boxes_reward((boxes & room.targets).bit_count() - before)
            best = max(best, depth * STEP_REWARD + gained)
    return False, best


def random_play(room: Sokoban | Room | str, moves: int) -> tuple[float, float]:
    """Chance of success and expected return of ``moves`` actions drawn uniformly, ending when solved. Exact."""
    room = as_room(room)
    chances = {(room.player, room.boxes): 1.0}
    success = earned = 0.0
    for _ in range(moves):
        following: dict[State, float] = {}
        for state, chance in chances.items():
            before = (state[1] & room.targets).bit_count()
            share = chance / len(ACTIONS)
            for after in successors(room, state):
                earned += share * (
                    STEP_REWARD + _boxes_reward((after[1] & room.targets).bit_count() - before)
                )
                if after[1] == room.targets:
                    success += share
                    earned += share * FINISHED_REWARD
                else:
                    following[after] = following.get(after, 0.0) + share
        chances = following
    return success, earned


def successors(room: Room, state: State) -> list[State]:
    """(player, boxes) after each of ``ACTIONS``; the same state where the move is not possible."""
    player, boxes = state
    free = room.floor & ~boxes
    result = []
    for delta in room.deltas:
        ahead = player + delta
        if free >> ahead & 1:
            result.append((ahead, boxes))
        elif boxes >> ahead & 1 and free >> (ahead + delta) & 1:
            result.append((ahead, boxes ^ (1 << ahead) ^ (1 << (ahead + delta))))
        else:
            result.append(state)
    return result


def as_room(room: Sokoban | Room | str) -> Room:
    """The room of an environment's present state or of a text in the standard symbols."""
    if isinstance(room, str):
        return Room.parse(room)
    return room.room if isinstance(room, Sokoban) else room


def _boxes_reward(gained: int) -> float:
    """Reward for ``gained`` more boxes on targets than before, or so many fewer."""
    return gained * BOX_ON_TARGET_REWARD if gained >= 0 else -gained * BOX_OFF_TARGET_REWARD


def live_cells(room: Room) -> int:
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


def _trace(came_from: dict[State, tuple[State, int]], state: State) -> list[str]:
    actions: list[str] = []
    while (step := came_from[state])[1] >= 0:
        actions.append(ACTIONS[step[1]])
        state = step[0]
    return actions[::-1]

"""Random Sokoban rooms of a chosen difficulty, by playing backwards from the solved room.

A walk carves the floor out of solid wall; targets are drawn on it. Then all states from which the room is
solved in d moves are found layer by layer, by undoing moves: layer 0 holds the solved states, and a state is
in layer d if one of its moves leads to layer d - 1 and it was in no earlier layer. So the optimal length of
every room is known without solving it, every room is solvable, and none is solved at the start.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from starpo.environments.sokoban_room import Room, cells_of

#: The walk's steps per row and column; about half of the inner cells become floor.
WALK_STEPS_PER_SIDE: Final = 1.7
#: Chance of the walk to take a new direction at a step.
TURN_PROBABILITY: Final = 0.35
#: What a step carves around the walker, as (row, column) offsets: alleys, corners and small places. A single
#: cell would give rooms of corridors, in which no box can be pushed round a corner.
BRUSHES: Final = (
    ((0, 0), (0, 1)),
    ((0, 0), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, 0), (0, -1), (-1, 0)),
    ((0, 0), (0, 1), (1, 0), (1, 1)),
)
#: Floors tried for one room. Difficulties that a room size can give at all need a handful, rarely a hundred.
MAX_FLOORS: Final = 2000


def draw_room(
    instance: np.random.Generator,
    *,
    rows: int,
    columns: int,
    num_boxes: int,
    min_optimal: int,
    max_optimal: int,
) -> Room:
    """A random room that is best solved in ``min_optimal`` to ``max_optimal`` moves, each length as likely.

    No box starts on a target, so lengths below ``num_boxes`` do not exist and are not drawn. Raises
    ``ValueError`` if ``MAX_FLOORS`` floors have no room of the drawn length.
    """
    optimal = int(instance.integers(max(min_optimal, num_boxes), max_optimal + 1))
    for _ in range(MAX_FLOORS):
        floor = _carve(instance, rows, columns)
        cells = cells_of(floor)
        if len(cells) < 2 * num_boxes + 1:
            continue
        chosen = instance.permutation(len(cells))[:num_boxes].tolist()
        targets = sum(1 << cells[index] for index in chosen)
        room = Room(rows, columns, floor, targets, targets, cells[0])
        states = [state for state in _states_at(room, optimal) if not state[1] & targets]
        if states:
            player, boxes = states[int(instance.integers(len(states)))]
            return Room(rows, columns, floor, targets, boxes, player)
    raise ValueError(
        f"Sokoban: none of {MAX_FLOORS} random {rows}x{columns} floors with {num_boxes} box(es) has a "
        f"shortest solution of {optimal} moves; lower min_optimal ({min_optimal}) or max_optimal "
        f"({max_optimal})"
    )


def _carve(instance: np.random.Generator, rows: int, columns: int) -> int:
    """Floor cells, as bits, along a random walk that stays off the rim."""
    steps = int(WALK_STEPS_PER_SIDE * (rows + columns))
    # One call for all steps: a generator call costs more than a step.
    turns = (instance.random(steps) < TURN_PROBABILITY).tolist()
    directions = instance.integers(4, size=steps + 1).tolist()
    brushes = instance.integers(len(BRUSHES), size=steps).tolist()
    row = int(instance.integers(1, rows - 1))
    column = int(instance.integers(1, columns - 1))
    direction = directions[steps]
    floor = 0
    for step in range(steps):
        if turns[step]:
            direction = directions[step]
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[direction]
        row = min(max(row + down, 1), rows - 2)
        column = min(max(column + right, 1), columns - 2)
        for brush_down, brush_right in BRUSHES[brushes[step]]:
            y, x = row + brush_down, column + brush_right
            if 0 < y < rows - 1 and 0 < x < columns - 1:
                floor |= 1 << (y * (columns + 1) + x)
    return floor


def _states_at(room: Room, optimal: int) -> list[tuple[int, int]]:
    """All (player, boxes) from which the room is solved in ``optimal`` moves and no fewer, in fixed order."""
    floor = room.floor
    layer = [(player, room.targets) for player in cells_of(floor & ~room.targets)]
    seen = set(layer)
    for _ in range(optimal):
        earlier: list[tuple[int, int]] = []
        for player, boxes in layer:
            free = floor & ~boxes
            for delta in room.deltas:
                origin = player - delta
                if not free >> origin & 1:
                    continue
                state = (origin, boxes)  # the player walked from origin
                if state not in seen:
                    seen.add(state)
                    earlier.append(state)
                ahead = player + delta
                if boxes >> ahead & 1:  # or pushed a box from its present cell to the one ahead
                    state = (origin, boxes ^ (1 << ahead) ^ (1 << player))
                    if state not in seen:
                        seen.add(state)
                        earlier.append(state)
        layer = earlier
    return layer

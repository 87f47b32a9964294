"""Random Sokoban rooms of a chosen difficulty, by playing backwards from the solved room.

A walk carves the floor out of solid wall; targets are drawn on it. Then all states from which the room is
solved in d moves are found layer by layer, by undoing moves: layer 0 holds the solved states, and a state is
in layer d if one of its moves leads to layer d - 1 and it was in no earlier layer. So the optimal length of
every room is known without solving it, every room is solvable, and none is solved at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np

from starpo.environments.sokoban_lengths import draw_length
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
#: States searched on one floor before giving up: a gigabyte. Rooms of the built-in difficulties have some thousands.
MAX_STATES: Final = 3_000_000
#: Floors tried for one room. Difficulties that a room size can give at all need a handful, rarely a hundred.
MAX_FLOORS: Final = 2000


def draw_room(
    instance: np.random.Generator,
    *,
    rows: int,
    columns: int,
    num_boxes: int,
    lengths: Mapping[int, int],
    starts_on_target: bool,
) -> Room:
    """A random room whose shortest solution has one of the ``lengths`` (moves -> relative frequency).

    Not RAGEN's generator, whose random play backwards leaves the length to chance: here the length is drawn
    first, from a law measured on its rooms if ``lengths`` is one, then a room of that length. Boxes never start
    on targets, the player only with ``starts_on_target``. Raises ``ValueError`` if ``MAX_FLOORS`` floors have no
    room of the drawn length, or one of them has more than ``MAX_STATES`` positions within it.
    """
    optimal = draw_length(instance, lengths)
    for _ in range(MAX_FLOORS):
        floor = _carve(instance, rows, columns)
        cells = cells_of(floor)
        if len(cells) < 2 * num_boxes + 1:
            continue
        chosen = instance.permutation(len(cells))[:num_boxes].tolist()
        targets = sum(1 << cells[index] for index in chosen)
        room = Room(rows, columns, floor, targets, targets, cells[0])
        states = [state for state in _states_at(room, optimal) if not state[1] & targets]
        if not starts_on_target:
            states = [state for state in states if not targets >> state[0] & 1]
        if states:
            player, boxes = states[int(instance.integers(len(states)))]
            return Room(rows, columns, floor, targets, boxes, player)
    raise ValueError(
        f"Sokoban: none of {MAX_FLOORS} random {rows}x{columns} floors with {num_boxes} box(es) has a "
        f"shortest solution of {optimal} moves; lower min_optimal ({min(lengths)}) or max_optimal "
        f"({max(lengths)})"
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
    ways, strokes = _walks(rows, columns)
    cell = row * columns + column
    way = ways[directions[steps]]
    floor = 0
    for turn, direction, brush in zip(turns, directions, brushes, strict=False):
        if turn:
            way = ways[direction]
        cell = way[cell]
        floor |= strokes[brush][cell]
    return floor


@cache
def _walks(rows: int, columns: int) -> tuple[list[list[int]], list[list[int]]]:
    """Where each direction leads from each cell, and what each brush carves there, as bits.

    Cells are numbered row * columns + column here; the bits are ``Room``'s.
    """
    cells = [divmod(cell, columns) for cell in range(rows * columns)]

    def step(row: int, column: int, down: int, right: int) -> int:
        return min(max(row + down, 1), rows - 2) * columns + min(max(column + right, 1), columns - 2)

    def stroke(row: int, column: int, brush: tuple[tuple[int, int], ...]) -> int:
        touched = {(row + down, column + right) for down, right in brush}
        return sum(
            1 << (y * (columns + 1) + x) for y, x in touched if 0 < y < rows - 1 and 0 < x < columns - 1
        )

    ways = [[step(*cell, *direction) for cell in cells] for direction in ((-1, 0), (1, 0), (0, -1), (0, 1))]
    strokes = [[stroke(*cell, brush) for cell in cells] for brush in BRUSHES]
    return ways, strokes


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
        if len(seen) > MAX_STATES:
            raise ValueError(
                f"Sokoban: a {room.rows}x{room.columns} floor with {room.boxes.bit_count()} boxes has more than "
                f"{MAX_STATES} positions within {optimal} moves; lower max_optimal, num_boxes or size"
            )
    return layer

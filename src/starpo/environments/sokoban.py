"""Push every box onto a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import numpy as np

from starpo.environments.arguments import check_switches, is_whole
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.records import Expectation, Failure, Limits, PlayedEpisode, StateFacts
from starpo.environments.sokoban_generator import draw_room
from starpo.environments.sokoban_lengths import length_weights
from starpo.environments.sokoban_room import ACTIONS, Room, cells_of, complete_symbols
from starpo.environments.splits import Split, split_of

#: gym-sokoban's rewards.
STEP_REWARD: Final = -0.1
BOX_ON_TARGET_REWARD: Final = 1.0
BOX_OFF_TARGET_REWARD: Final = -1.0
FINISHED_REWARD: Final = 10.0

DEADLOCK: Final = "deadlock"

MIN_SIDE: Final = 5  # three inner cells: the least that a box and a player can turn in
MAX_SIDE: Final = 20
MAX_MOVES: Final = 1000  # far beyond what rooms of these sizes need

#: The present room, cell by cell: text (what each cell shows now), change of the cell number by action, 1 where a
#: target is, what each cell shows with nothing, the player or a box on it (never asked of rim and line breaks),
#: the two symbols that can be walked on, the wall's. A plain tuple, unpacked at once: in a step every look-up
#: counts.
_Cells = tuple[list[str], dict[str, int], list[int], list[str], list[str], list[str], tuple[str, str], str]


class Sokoban(TextEnvironment):
    """Walk through a room and push every box onto a target.

    Description:
        The player moves up, down, left or right. Walking into a box pushes it one cell on, if that cell is
        neither wall nor box; boxes cannot be pulled, so a careless push can make the room unsolvable. A move
        that is not possible changes nothing but counts as a step.

    Action Space:
        ``Up``, ``Down``, ``Left``, ``Right``.

    Observation:
        The room, one line per row, in the symbols of ``symbols``: by default ``#`` wall, ``_`` floor, ``O``
        target, ``√`` box on target, ``X`` box, ``P`` player, ``S`` player on target. With ``coordinates`` a
        further line such as ``Player (2,3). Boxes (3,3). Targets (4,1).``, as (row, column) from the upper left
        corner, (0,0).

    Starting State:
        A random room with no box on a target, whose shortest solution has ``min_optimal`` to ``max_optimal``
        moves, each length as likely or, with ``lengths="ragen"``, as frequent as among RAGEN's rooms, in which
        the player does not start on a target either. ``reset`` takes ``options={"board": text}`` to start from a given
        room of the same size and number of boxes instead, in the environment's symbols.

    Rewards:
        -0.1 per step; +1 when a box comes onto a target, -1 when one leaves it; +10 when all are on targets.

    Episode End:
        Terminated when all boxes are on targets (``success``); truncated after ``max_steps`` steps otherwise.
        ``info`` of a step also has ``boxes_on_target`` and ``steps`` (taken so far).

    Arguments:
        size: (rows, columns) with the walls, 5 to 20 each.
        num_boxes: boxes, and as many targets.
        max_steps: steps until truncation.
        min_optimal, max_optimal: range of the shortest solution's moves; at least ``num_boxes`` are needed in
            any case. The default 1 to 7 has the mean length, 4.0, of RAGEN's 6x6 rooms with one box.
        lengths: ``uniform``, or ``ragen`` for the lengths of RAGEN's rooms (6x6 with one box, 8x8 with two; 1 to
            11 moves).
        coordinates: add the line with the coordinates.
        symbols: other characters for some of the names in ``sokoban_room.SYMBOLS``; ``rules`` follows them.
    """

    action_names = ACTIONS
    action_cost = -STEP_REWARD
    failure_labels: ClassVar = {
        DEADLOCK: (
            "Sokoban: the last position cannot be solved by any number of moves; the turn is that of the push that "
            "sealed it"
        )
    }
    trusted = True

    def __init__(
        self,
        *,
        size: Sequence[int] = (6, 6),
        num_boxes: int = 1,
        max_steps: int = 100,
        min_optimal: int = 1,
        max_optimal: int = 7,
        lengths: str = "uniform",
        coordinates: bool = False,
        symbols: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        if (
            not isinstance(size, Sequence)
            or len(size) != 2
            or not all(is_whole(side) and MIN_SIDE <= side <= MAX_SIDE for side in size)
        ):
            raise ValueError(
                f"Sokoban: size is {size!r}, allowed: two whole numbers {MIN_SIDE} to {MAX_SIDE}"
            )
        self.size = (size[0], size[1])
        # Boxes need floor to be pushed over, and about half of the inner cells are floor.
        most_boxes = max(1, (size[0] - 2) * (size[1] - 2) // 6)
        if not (is_whole(num_boxes) and 1 <= num_boxes <= most_boxes):
            raise ValueError(
                f"Sokoban: num_boxes is {num_boxes!r}, allowed in {size[0]}x{size[1]}: 1 to {most_boxes}"
            )
        if not (is_whole(max_steps) and max_steps >= 1):
            raise ValueError(f"Sokoban: max_steps is {max_steps!r}, allowed: whole numbers from 1")
        if (
            not (is_whole(min_optimal) and is_whole(max_optimal))
            or not 1 <= min_optimal <= max_optimal <= MAX_MOVES
            or max_optimal < num_boxes
        ):
            raise ValueError(
                f"Sokoban: min_optimal is {min_optimal!r} and max_optimal {max_optimal!r}, allowed: whole numbers, "
                f"1 <= min_optimal <= max_optimal <= {MAX_MOVES}, and max_optimal from num_boxes ({num_boxes})"
            )
        check_switches("Sokoban", coordinates=coordinates)
        self.num_boxes = num_boxes
        self.max_steps = max_steps
        self.min_optimal = min_optimal
        self.max_optimal = max_optimal
        self.lengths = lengths
        self._weights = length_weights(
            lengths,
            rows=size[0],
            columns=size[1],
            num_boxes=num_boxes,
            shortest=min_optimal,
            longest=max_optimal,
        )
        self.coordinates = coordinates
        self.symbols = complete_symbols(symbols)
        self.rules = _rules(self.symbols, coordinates)
        # A given board may start with all boxes but one on targets and lose them; every box on its target
        # takes at least one step.
        self.return_range = (
            max_steps * STEP_REWARD + (num_boxes - 1) * BOX_OFF_TARGET_REWARD,
            FINISHED_REWARD + num_boxes * (BOX_ON_TARGET_REWARD + STEP_REWARD),
        )
        # (beside a target, on it) for a cell with nothing, the player, a box
        names = (("floor", "target"), ("player", "player_on_target"), ("box", "box_on_target"))
        self._symbol_pairs = tuple((self.symbols[plain], self.symbols[target]) for plain, target in names)
        self._given: Room | None = None

    @property
    def board(self) -> str:
        """The present room text, without coordinates."""
        return "".join(self._cells[0])

    @property
    def room(self) -> Room:
        """The present room."""
        return Room.parse(self.board, self.symbols)

    def declared_split(self) -> Split:
        """The split of the present episode's first room, whatever symbols it is shown in."""
        return split_of(self._first.text())

    # The solver builds on this module, and is imported where it is asked.

    def optimal_actions(self) -> list[str]:
        """A solution with the fewest moves; empty where there is none."""
        from starpo.environments import sokoban_solver as solver  # noqa: PLC0415

        return solver.solve_sokoban(self) or []

    def best_play(self, limits: Limits) -> Expectation | None:
        """By breadth-first search; None in a room with too many positions for it."""
        from starpo.environments import sokoban_solver as solver  # noqa: PLC0415

        try:
            solved, value = solver.best_within(self, min(limits.moves, self.max_steps))
        except RuntimeError:
            return None
        return Expectation(float(solved), value)

    def random_play(self, limits: Limits) -> Expectation:
        """Over the distribution of positions."""
        from starpo.environments import sokoban_solver as solver  # noqa: PLC0415

        return Expectation(*solver.random_play(self, min(limits.moves, self.max_steps)))

    def state(self) -> Room:
        """The present room."""
        return self.room

    def own_failure(self, episode: PlayedEpisode) -> Failure | None:
        """The push after which no moves solve the room."""
        from starpo.environments.sokoban_deadlock import first_deadlock  # noqa: PLC0415

        if episode.success:
            return None
        sealed = first_deadlock([cast(Room, step.after) for step in episode.steps])
        return None if sealed is None else Failure(DEADLOCK, episode.steps[sealed].turn)

    def facts(self, observation: str) -> StateFacts | None:
        """Player, boxes, targets, walls and floor by cell, and what lies around the player."""
        room = self._shown(observation)
        if room is None:
            return None
        inside = [
            row * (room.columns + 1) + column for row in range(room.rows) for column in range(room.columns)
        ]
        whole = sum(1 << cell for cell in inside)
        things = {
            "player": 1 << room.player,
            "box": room.boxes,
            "target": room.targets,
            "wall": whole & ~room.floor,
            "floor": room.floor & ~room.boxes & ~room.targets,
        }
        around = {
            action.lower(): frozenset(
                name for name, cells in things.items() if cells >> (room.player + delta) & 1
            )
            for action, delta in zip(ACTIONS, room.deltas, strict=True)
        }
        places = {
            name: frozenset(divmod(cell, room.columns + 1) for cell in cells_of(cells))
            for name, cells in things.items()
        }
        return StateFacts(ACTIONS, places, around)

    def distance(self, observation: str) -> float | None:
        """Moves of a shortest solution; None in a room with too many positions to search."""
        from starpo.environments import sokoban_solver as solver  # noqa: PLC0415

        room = self._shown(observation)
        if room is None:
            return None
        try:
            solution = solver.solve_sokoban(room)
        except RuntimeError:
            return None
        return math.inf if solution is None else float(len(solution))

    def _shown(self, observation: str) -> Room | None:
        """The room that the first lines of ``observation`` show in the environment's symbols."""
        try:
            return Room.parse("\n".join(observation.split("\n")[: self.size[0]]), self.symbols)
        except ValueError:
            return None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an instance; ``options["board"]`` gives the room, which is otherwise drawn from ``seed``."""
        board = (options or {}).get("board")
        self._given = None if board is None else self._accept(board)
        return super().reset(seed=seed, options=options)

    def _accept(self, board: str) -> Room:
        room = Room.parse(board, self.symbols)
        if (room.rows, room.columns) != self.size or room.boxes.bit_count() != self.num_boxes:
            raise ValueError(
                f"Sokoban: board {board!r} must have {self.size} rows and columns and {self.num_boxes} boxes"
            )
        if room.solved:
            raise ValueError(f"Sokoban: board {board!r} is solved already")
        return room

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        room = self._given or draw_room(
            instance,
            rows=self.size[0],
            columns=self.size[1],
            num_boxes=self.num_boxes,
            lengths=self._weights,
            starts_on_target=self.lengths == "uniform",
        )
        self._first = room
        self._player = room.player
        text = list(room.text(self.symbols))
        is_target = [0] * len(text)
        empty, with_player, with_box = ([beside] * len(text) for beside, _ in self._symbol_pairs)
        for cell in cells_of(room.targets):
            is_target[cell] = 1
            empty[cell], with_player[cell], with_box[cell] = (on_it for _, on_it in self._symbol_pairs)
        deltas = dict(zip(ACTIONS, room.deltas, strict=True))
        free, wall = self._symbol_pairs[0], self.symbols["wall"]
        self._cells: _Cells = (text, deltas, is_target, empty, with_player, with_box, free, wall)
        self._on_target = (room.boxes & room.targets).bit_count()
        self._steps = 0
        # The observation by the player's cell, for as long as no box moves: agents walk over the same few cells
        # again and again, and a text costs more than a move.
        self._seen: dict[int, str] = {}
        return self._observe(), {"success": False}

    def _act(self, action: str) -> StepResult:
        text, deltas, is_target, empty, with_player, with_box, free, wall = self._cells
        origin = self._player
        delta = deltas[action]
        ahead = origin + delta
        reward, success, pushes = STEP_REWARD, False, text[ahead] not in free
        effective = not pushes or (text[ahead] != wall and text[ahead + delta] in free)
        if effective:
            if pushes:
                beyond = ahead + delta
                text[beyond] = with_box[beyond]
                self._seen = {}
                gained = is_target[beyond] - is_target[ahead]
                if gained:
                    self._on_target += gained
                    reward += BOX_ON_TARGET_REWARD if gained > 0 else BOX_OFF_TARGET_REWARD
                    success = self._on_target == self.num_boxes
                    if success:
                        reward += FINISHED_REWARD
            text[ahead] = with_player[ahead]
            text[origin] = empty[origin]
            self._player = ahead
        self._steps = steps = self._steps + 1
        info = {
            "success": success,
            "effective": effective,
            "boxes_on_target": self._on_target,
            "steps": steps,
        }
        observation = self._seen.get(self._player) or self._observe()
        return observation, reward, success, steps >= self.max_steps and not success, info

    def _observe(self) -> str:
        observation = "".join(self._cells[0])
        if self.coordinates:
            room = self.room
            parts = (("Player", 1 << room.player), ("Boxes", room.boxes), ("Targets", room.targets))
            line = " ".join(f"{name} {self._places(cells)}." for name, cells in parts)
            observation = f"{observation}\n{line}"
        self._seen[self._player] = observation
        return observation

    def _places(self, cells: int) -> str:
        stride = self.size[1] + 1
        return ", ".join(f"({cell // stride},{cell % stride})" for cell in cells_of(cells))


def _rules(symbols: Mapping[str, str], coordinates: bool) -> str:
    legend = ", ".join(f"{symbol} {name.replace('_', ' ')}" for name, symbol in symbols.items())
    where = " Coordinates are (row,column), (0,0) is the upper left corner." if coordinates else ""
    return (
        "You push boxes in a room. Push every box onto a target. You can push one box at a time and cannot "
        "pull.\n"
        f"Symbols: {legend}.{where}\nActions: {', '.join(ACTIONS)}."
    )

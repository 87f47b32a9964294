"""Push every box onto a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.sokoban_generator import draw_room
from starpo.environments.sokoban_room import ACTIONS, Room, complete_symbols

#: gym-sokoban's rewards.
STEP_REWARD: Final = -0.1
BOX_ON_TARGET_REWARD: Final = 1.0
BOX_OFF_TARGET_REWARD: Final = -1.0
FINISHED_REWARD: Final = 10.0

MIN_SIDE: Final = 5  # three inner cells: the least that a box and a player can turn in
MAX_SIDE: Final = 20


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
        target, ``√`` box on target, ``X`` box, ``P`` player, ``S`` player on target.

    Starting State:
        A random room with no box on a target, whose shortest solution has ``min_optimal`` to ``max_optimal``
        moves, each length equally likely. ``reset`` takes ``options={"board": text}`` to start from a given
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
        symbols: other characters for some of the names in ``sokoban_room.SYMBOLS``; ``rules`` follows them.
    """

    action_names = ACTIONS

    def __init__(
        self,
        *,
        size: Sequence[int] = (6, 6),
        num_boxes: int = 1,
        max_steps: int = 100,
        min_optimal: int = 1,
        max_optimal: int = 7,
        symbols: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        if len(size) != 2 or not all(isinstance(side, int) and MIN_SIDE <= side <= MAX_SIDE for side in size):
            raise ValueError(
                f"Sokoban: size is {size!r}, allowed: two whole numbers {MIN_SIDE} to {MAX_SIDE}"
            )
        self.size = (size[0], size[1])
        # Boxes need floor to be pushed over, and about half of the inner cells are floor.
        most_boxes = max(1, (size[0] - 2) * (size[1] - 2) // 6)
        if not isinstance(num_boxes, int) or not 1 <= num_boxes <= most_boxes:
            raise ValueError(
                f"Sokoban: num_boxes is {num_boxes!r}, allowed in {size[0]}x{size[1]}: 1 to {most_boxes}"
            )
        if not isinstance(max_steps, int) or max_steps < 1:
            raise ValueError(f"Sokoban: max_steps is {max_steps!r}, allowed: whole numbers from 1")
        if not 1 <= min_optimal <= max_optimal or max_optimal < num_boxes:
            raise ValueError(
                f"Sokoban: min_optimal is {min_optimal!r} and max_optimal {max_optimal!r}, allowed: "
                f"1 <= min_optimal <= max_optimal, and max_optimal from num_boxes ({num_boxes})"
            )
        self.num_boxes = num_boxes
        self.max_steps = max_steps
        self.min_optimal = min_optimal
        self.max_optimal = max_optimal
        self.symbols = complete_symbols(symbols)
        self.rules = _rules(self.symbols)
        # A given board may start with all boxes but one on targets and lose them; every box on its target
        # takes at least one step.
        self.return_range = (
            max_steps * STEP_REWARD + (num_boxes - 1) * BOX_OFF_TARGET_REWARD,
            FINISHED_REWARD + num_boxes * (BOX_ON_TARGET_REWARD + STEP_REWARD),
        )
        # [target?][0 nothing, 1 box, 2 player]
        names = (("floor", "box", "player"), ("target", "box_on_target", "player_on_target"))
        self._symbol_at = tuple(tuple(self.symbols[name] for name in row) for row in names)
        self._given: Room | None = None

    @property
    def board(self) -> str:
        """The present room text."""
        return "".join(self._text)

    @property
    def room(self) -> Room:
        """The present room."""
        return Room(*self.size, self._floor, self._targets, self._boxes, self._player)

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
            min_optimal=self.min_optimal,
            max_optimal=self.max_optimal,
        )
        self._floor, self._targets = room.floor, room.targets
        self._boxes, self._player = room.boxes, room.player
        self._deltas = dict(zip(ACTIONS, room.deltas, strict=True))
        self._text = list(room.text(self.symbols))
        self._steps = 0
        return self.board, {"success": False}

    def _act(self, action: str) -> StepResult:
        self._steps += 1
        before = (self._boxes & self._targets).bit_count()
        effective = self._move(self._deltas[action])
        on_target = (self._boxes & self._targets).bit_count()
        success = on_target == self.num_boxes
        reward = STEP_REWARD
        if on_target > before:
            reward += BOX_ON_TARGET_REWARD
        elif on_target < before:
            reward += BOX_OFF_TARGET_REWARD
        if success:
            reward += FINISHED_REWARD
        info = {
            "success": success,
            "effective": effective,
            "boxes_on_target": on_target,
            "steps": self._steps,
        }
        return self.board, reward, success, not success and self._steps >= self.max_steps, info

    def _move(self, delta: int) -> bool:
        """Move the player, and the box in the way; whether it was possible."""
        origin, ahead, beyond = self._player, self._player + delta, self._player + 2 * delta
        if not self._floor >> ahead & 1:
            return False
        if self._boxes >> ahead & 1:
            if not (self._floor & ~self._boxes) >> beyond & 1:
                return False
            self._boxes ^= (1 << ahead) | (1 << beyond)
            self._text[beyond] = self._symbol_at[self._targets >> beyond & 1][1]
        self._player = ahead
        self._text[ahead] = self._symbol_at[self._targets >> ahead & 1][2]
        self._text[origin] = self._symbol_at[self._targets >> origin & 1][0]
        return True


def _rules(symbols: Mapping[str, str]) -> str:
    legend = ", ".join(f"{symbol} {name.replace('_', ' ')}" for name, symbol in symbols.items())
    return (
        "You push boxes in a room. Push every box onto a target. You can push one box at a time and cannot "
        "pull.\n"
        f"Symbols: {legend}.\nActions: {', '.join(ACTIONS)}."
    )

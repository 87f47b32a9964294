"""Cross a frozen lake without falling into a hole, on ice that may slip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np

from starpo.environments.arguments import check_switches, is_number, is_whole
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.records import Expectation, Failure, Limits, PlayedEpisode, StateFacts
from starpo.environments.splits import Split, split_of

#: In circular order: the directions perpendicular to one are its two neighbours.
ACTIONS: Final = ("Left", "Down", "Right", "Up")
_MOVES: Final = ((0, -1), (1, 0), (0, 1), (-1, 0))

PLAYER, FROZEN, HOLE, GOAL, PLAYER_IN_HOLE, PLAYER_ON_GOAL = "P_OGX√"
MIN_SIZE, MAX_SIZE = 2, 32


@cache
def neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """``neighbours(size)[cell][action]`` is the cell that the action leads to; the rim stops the player."""
    return tuple(
        tuple(
            min(max(row + down, 0), size - 1) * size + min(max(column + right, 0), size - 1)
            for down, right in _MOVES
        )
        for row in range(size)
        for column in range(size)
    )


@dataclass(frozen=True)
class Lake:
    """A lake and where the player stands. Cells are numbered row by row from the upper left one, 0."""

    size: int  # rows and columns
    cells: str  # size * size symbols of FROZEN, HOLE and GOAL: the ground, without the player
    player: int  # the player's cell

    @property
    def goal(self) -> int:
        return self.cells.index(GOAL)

    @property
    def over(self) -> bool:
        """Whether the player stands in a hole or on the goal."""
        return self.cells[self.player] != FROZEN

    @classmethod
    def parse(cls, text: str) -> Lake:
        """The lake that a board text shows (``P_\\nOG``). Raises ``ValueError`` on anything else."""
        rows = text.split("\n")
        size = len(rows)
        if not MIN_SIZE <= size <= MAX_SIZE or any(len(row) != size for row in rows):
            raise ValueError(
                f"FrozenLake: board {text!r} is not a square of {MIN_SIZE} to {MAX_SIZE} rows and columns"
            )
        flat = "".join(rows)
        under = {PLAYER: FROZEN, PLAYER_IN_HOLE: HOLE, PLAYER_ON_GOAL: GOAL}
        players = [cell for cell, symbol in enumerate(flat) if symbol in under]
        cells = "".join(under.get(symbol, symbol) for symbol in flat)
        if len(players) != 1 or cells.count(GOAL) != 1 or set(cells) - {FROZEN, HOLE, GOAL}:
            raise ValueError(
                f"FrozenLake: board {text!r} needs one player ({PLAYER}, {PLAYER_IN_HOLE} or "
                f"{PLAYER_ON_GOAL}), one goal ({GOAL} or {PLAYER_ON_GOAL}) and otherwise {FROZEN} and {HOLE}"
            )
        return cls(size, cells, players[0])


def draw_lake(instance: np.random.Generator, size: int, frozen_probability: float) -> Lake:
    """A random lake whose goal can be reached from the start without touching a hole.

    Each cell is frozen with ``frozen_probability``; then start and goal are drawn uniformly and made
    passable. The whole lake is redrawn until start and goal differ and are connected. The draws come in the
    same order as RAGEN's, so that an equal seed gives its map.
    """
    while True:
        frozen = (instance.random(size * size) < frozen_probability).tolist()
        start, goal = (int(row) * size + int(column) for row, column in instance.integers(size, size=(2, 2)))
        if start == goal:
            continue
        frozen[start] = frozen[goal] = True
        if _connected(frozen, size, start, goal):
            ground = [FROZEN if is_frozen else HOLE for is_frozen in frozen]
            ground[goal] = GOAL
            return Lake(size, "".join(ground), start)


def _connected(passable: list[bool], size: int, start: int, goal: int) -> bool:
    table = neighbours(size)
    seen = {start}
    frontier = [start]
    while frontier:
        for cell in table[frontier.pop()]:
            if cell == goal:
                return True
            if passable[cell] and cell not in seen:
                seen.add(cell)
                frontier.append(cell)
    return False


HOLE_BY_PLAN: Final = "hole_by_plan"
HOLE_BY_SLIP: Final = "hole_by_slip"
HOLE_AFTER_SLIP: Final = "hole_after_slip"

_GROUND_WORDS: Final = {FROZEN: "ice", HOLE: "hole", GOAL: "goal"}
_EDGE: Final = "edge"


class FrozenLake(TextEnvironment):
    """Walk over a frozen lake from the start to the goal without falling into a hole.

    Description:
        A square lake with holes. On slippery ice a move goes in the chosen direction with
        ``success_probability`` and otherwise, equally likely, in one of the two perpendicular ones; never in
        the opposite one. A move over the rim leaves the player in place.

    Action Space:
        ``Left``, ``Down``, ``Right``, ``Up``.

    Observation:
        The board, one line per row: ``P`` player, ``_`` ice, ``O`` hole, ``G`` goal, ``X`` player in a hole,
        ``√`` player on the goal. With ``coordinates`` a further line such as ``Player (1,2). Goal (3,0).``,
        as (row, column) from the upper left corner, (0,0). With ``surroundings`` a last line such as
        ``Left: edge, Down: ice, Right: hole, Up: goal.`` says what lies one step away.

    Starting State:
        A random map with random start and goal that are connected without holes. ``reset`` takes
        ``options={"board": text}`` to start from a given board of the same size instead. A lake belongs to one
        split whatever is shown of it (``declared_split``).

    Rewards:
        1 for reaching the goal, else 0.

    Episode End:
        Terminated on the goal (``success``) or in a hole. There is no step limit here; limits on turns and
        actions belong to the rollout.

    Arguments:
        size: rows and columns, 2 to 32.
        frozen_probability: chance of each cell to be ice, above 0 and at most 1.
        slippery: whether moves can slip; False makes every move succeed.
        success_probability: chance that a move on slippery ice goes as chosen.
        coordinates: add the line with the player's and the goal's coordinates.
        surroundings: add the line with the four neighbouring cells.
    """

    phrases = (
        "\nPlayer (",
        "). Goal (",
        ").",
        *(f"{gap}{action}: " for gap, action in zip(("\n", ", ", ", ", ", "), ACTIONS, strict=True)),
        *_GROUND_WORDS.values(),
        _EDGE,
    )
    action_names = ACTIONS
    return_range = (0.0, 1.0)
    failure_labels: ClassVar = {
        HOLE_BY_PLAN: (
            "FrozenLake: the action's own direction led into a hole, as the turn's actions do when none slips"
        ),
        HOLE_BY_SLIP: "FrozenLake: a slip led into the hole; the action's own direction did not",
        HOLE_AFTER_SLIP: (
            "FrozenLake: the action's own direction led into a hole, but only because an earlier slip of the same "
            "turn, which the policy could not see, had moved the player; without slips the turn's actions meet no hole"
        ),
    }
    trusted = True

    def __init__(
        self,
        *,
        size: int = 4,
        frozen_probability: float = 0.8,
        slippery: bool = True,
        success_probability: float = 1 / 3,
        coordinates: bool = False,
        surroundings: bool = False,
    ) -> None:
        super().__init__()
        if not (is_whole(size) and MIN_SIZE <= size <= MAX_SIZE):
            raise ValueError(f"FrozenLake: size is {size!r}, allowed: whole numbers {MIN_SIZE} to {MAX_SIZE}")
        if not (is_number(frozen_probability) and 0 < frozen_probability <= 1):
            raise ValueError(
                f"FrozenLake: frozen_probability is {frozen_probability!r}, allowed: above 0 and at most 1"
            )
        if not (is_number(success_probability) and 0 <= success_probability <= 1):
            raise ValueError(f"FrozenLake: success_probability is {success_probability!r}, allowed: 0 to 1")
        check_switches("FrozenLake", slippery=slippery, coordinates=coordinates, surroundings=surroundings)
        self.size = size
        self.frozen_probability = frozen_probability
        self.success_probability = success_probability if slippery else 1.0
        self.coordinates = coordinates
        self.surroundings = surroundings
        self.rules = _rules(self.success_probability, coordinates)
        self._slip_before = (1 - self.success_probability) / 2
        self._slip_after = self._slip_before + self.success_probability
        self._neighbours = neighbours(size)
        self._given: Lake | None = None

    @property
    def board(self) -> str:
        """The present board text, without coordinates."""
        return self._board(self._player)

    def declared_split(self) -> Split:
        """The split of the present episode's lake and start, whatever is shown of them and however it slips."""
        start = self._start
        return split_of(f"{self._board(start)}\n{self._coordinates(start)}\n{self._surroundings(start)}")

    # The solver builds on this module, and is imported where it is asked.

    def optimal_actions(self) -> list[str]:
        """A shortest path; on slippery ice an optimal action first, then those along the most likely outcomes."""
        from starpo.environments import frozen_lake_solver as solver  # noqa: PLC0415

        return solver.crossing(self)

    def best_play(self, limits: Limits) -> Expectation | None:
        """By dynamic programming over turns of blind actions; None where a slippery turn may be too long for it."""
        from starpo.environments import frozen_lake_solver as solver  # noqa: PLC0415

        return solver.best_crossing(self, limits)

    def random_play(self, limits: Limits) -> Expectation:
        """As many actions in all as are allowed: between turns a random player learns nothing."""
        from starpo.environments import frozen_lake_solver as solver  # noqa: PLC0415

        chance = solver.random_walk(self, moves=limits.moves)
        return Expectation(chance, chance)

    def chance_of(self, plan: Sequence[str]) -> float:
        """Chance that the plan ends on the goal."""
        from starpo.environments import frozen_lake_solver as solver  # noqa: PLC0415

        return solver.chance_of(self, plan)

    def state(self) -> Lake:
        """The present lake."""
        return Lake(self.size, self._cells, self._player)

    def own_failure(self, episode: PlayedEpisode) -> Failure | None:
        """How the player came to fall into a hole, if it did."""
        from starpo.environments.frozen_lake_falls import fall_of  # noqa: PLC0415

        return None if episode.success else fall_of(episode.steps)

    def facts(self, observation: str) -> StateFacts | None:
        """Player, goal, holes and ice by cell, and what lies around the player."""
        lake = self._shown(observation)
        if lake is None:
            return None
        words = {"player": {lake.player}} | {
            word: {cell for cell, ground in enumerate(lake.cells) if ground == symbol}
            for symbol, word in _GROUND_WORDS.items()
        }
        around = {
            action.lower(): frozenset({_EDGE} if cell == lake.player else {_GROUND_WORDS[lake.cells[cell]]})
            for action, cell in zip(ACTIONS, self._neighbours[lake.player], strict=True)
        }
        places = {word: frozenset(divmod(cell, lake.size) for cell in cells) for word, cells in words.items()}
        return StateFacts(ACTIONS, places, around)

    def distance(self, observation: str) -> float | None:
        """Length of the shortest path, as if no move slipped."""
        from starpo.environments import frozen_lake_solver as solver  # noqa: PLC0415

        lake = self._shown(observation)
        return None if lake is None else solver.solve_frozen_lake(lake).distances.get(lake.player, math.inf)

    def _shown(self, observation: str) -> Lake | None:
        """The lake whose board ``observation`` begins with."""
        try:
            lake = Lake.parse("\n".join(observation.split("\n")[: self.size]))
        except ValueError:
            return None
        return lake if lake.size == self.size else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an instance; ``options["board"]`` gives the lake, which is otherwise drawn from ``seed``."""
        board = (options or {}).get("board")
        self._given = None if board is None else self._accept(board)
        return super().reset(seed=seed, options=options)

    def _accept(self, board: str) -> Lake:
        lake = Lake.parse(board)
        if lake.size != self.size or lake.over:
            raise ValueError(f"FrozenLake: board {board!r} must have {self.size} rows and the player on ice")
        return lake

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        lake = self._given or draw_lake(instance, self.size, self.frozen_probability)
        self._cells = lake.cells
        self._player = self._start = lake.player
        self._goal_text = f"Goal ({lake.goal // self.size},{lake.goal % self.size})."
        self._ground = "\n".join(
            lake.cells[row * self.size : (row + 1) * self.size] for row in range(self.size)
        )
        self._seen: dict[int, str] = {}  # the observation by the player's cell, all that changes
        return self._observe(), {"success": False}

    def _act(self, action: str) -> StepResult:
        direction = ACTIONS.index(action)
        if self.success_probability < 1:
            luck = self.dynamics.random()
            if luck < self._slip_before:
                direction = (direction - 1) % 4
            elif luck >= self._slip_after:
                direction = (direction + 1) % 4
        before = self._player
        self._player = self._neighbours[before][direction]
        ground = self._cells[self._player]
        success = ground == GOAL
        info = {"success": success, "effective": self._player != before}
        observation = self._seen.get(self._player) or self._observe()
        return observation, float(success), ground != FROZEN, False, info

    def _observe(self) -> str:
        lines = [self.board]
        if self.coordinates:
            lines.append(self._coordinates(self._player))
        if self.surroundings:
            lines.append(self._surroundings(self._player))
        observation = self._seen[self._player] = "\n".join(lines)
        return observation

    def _board(self, player: int) -> str:
        # Each row but the last ends in a line break, so cells lie one place further for every row above.
        at = player + player // self.size
        return f"{self._ground[:at]}{_PLAYER_ON[self._cells[player]]}{self._ground[at + 1 :]}"

    def _coordinates(self, player: int) -> str:
        row, column = divmod(player, self.size)
        return f"Player ({row},{column}). {self._goal_text}"

    def _surroundings(self, player: int) -> str:
        cells = (
            _EDGE if cell == player else _GROUND_WORDS[self._cells[cell]] for cell in self._neighbours[player]
        )
        around = (f"{action}: {word}" for action, word in zip(ACTIONS, cells, strict=True))
        return f"{', '.join(around)}."


_PLAYER_ON: Final = {FROZEN: PLAYER, HOLE: PLAYER_IN_HOLE, GOAL: PLAYER_ON_GOAL}


def _rules(success_probability: float, coordinates: bool) -> str:
    ice = (
        "The ice is not slippery: every move goes as you choose."
        if success_probability == 1
        else f"The ice is slippery: a move goes as you choose with probability {success_probability:.2f}, "
        "otherwise to one of the two sides."
    )
    where = " Coordinates are (row,column), (0,0) is the upper left corner." if coordinates else ""
    return (
        "You cross a frozen lake. Reach the goal without falling into a hole.\n"
        f"Symbols: {PLAYER} you, {FROZEN} ice, {HOLE} hole, {GOAL} goal, {PLAYER_IN_HOLE} you in a hole, "
        f"{PLAYER_ON_GOAL} you on the goal.\n{ice}{where}\nActions: {', '.join(ACTIONS)}."
    )

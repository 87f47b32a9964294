"""A Sokoban room as numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

ACTIONS: Final = ("Up", "Down", "Left", "Right")

SYMBOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "wall": "#",
        "floor": "_",
        "target": "O",
        "box_on_target": "√",
        "box": "X",
        "player": "P",
        "player_on_target": "S",
    }
)
#: The same rooms in other letters, to see whether a policy reads the legend or knows the letters by heart.
DIFFERENT_SYMBOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "wall": "W",
        "floor": ".",
        "target": "G",
        "box_on_target": "C",
        "box": "B",
        "player": "A",
        "player_on_target": "@",
    }
)


def complete_symbols(symbols: Mapping[str, str] | None) -> dict[str, str]:
    """``SYMBOLS`` with ``symbols`` put over them; ``ValueError`` unless seven different characters result."""
    if symbols is not None and not isinstance(symbols, Mapping):
        raise ValueError(f"Sokoban: symbols is {symbols!r}, allowed: a mapping from {', '.join(SYMBOLS)}")
    unknown = sorted(set(map(str, symbols or {})) - set(SYMBOLS))
    if unknown:
        raise ValueError(f"Sokoban: unknown symbol name {unknown[0]!r}, allowed: {', '.join(SYMBOLS)}")
    merged = {**SYMBOLS, **(symbols or {})}
    for name, symbol in merged.items():
        if not isinstance(symbol, str) or len(symbol) != 1 or not symbol.isprintable() or symbol.isspace():
            raise ValueError(
                f"Sokoban: symbol {name} is {symbol!r}, allowed: one printable character, no blank"
            )
    if len(set(merged.values())) < len(merged):
        raise ValueError(f"Sokoban: symbols {merged} must all differ")
    return merged


@dataclass(frozen=True)
class Room:
    """A room closed by walls all round, its boxes and its player.

    Cells are numbered by their place in the room's text, whose rows end in a line break: cell = row *
    (columns + 1) + column. Sets of cells are integers with one bit per cell: small and hashable states.
    """

    rows: int
    columns: int
    floor: int  # cells that are not wall, as bits
    targets: int  # cells to push boxes to, as bits
    boxes: int  # cells with a box, as bits
    player: int  # the player's cell

    @cached_property
    def deltas(self) -> tuple[int, int, int, int]:
        """The change of the cell number for each of ``ACTIONS``."""
        return (-self.columns - 1, self.columns + 1, -1, 1)

    @property
    def solved(self) -> bool:
        return self.boxes == self.targets

    def text(self, symbols: Mapping[str, str] = SYMBOLS) -> str:
        """The room's rows, separated by line breaks."""
        stride = self.columns + 1
        text = [symbols["wall"]] * (self.rows * stride - 1)
        text[self.columns :: stride] = "\n" * (self.rows - 1)
        for name, cells in (
            ("floor", self.floor),
            ("target", self.targets),
            ("box", self.boxes),
            ("box_on_target", self.boxes & self.targets),
        ):
            for cell in cells_of(cells):
                text[cell] = symbols[name]
        text[self.player] = symbols["player_on_target" if self.targets >> self.player & 1 else "player"]
        return "".join(text)

    @classmethod
    def parse(cls, text: str, symbols: Mapping[str, str] = SYMBOLS) -> Room:
        """The room that a text shows. Raises ``ValueError`` with the reason if it is not a closed room."""
        rows = text.split("\n")
        columns = len(rows[0])
        if (
            not columns
            or any(len(row) != columns for row in rows)
            or set("".join(rows)) - set(symbols.values())
        ):
            raise ValueError(f"Sokoban: board {text!r} is not a rectangle of {''.join(symbols.values())}")

        def cells(*names: str) -> int:
            wanted = {symbols[name] for name in names}
            return sum(1 << cell for cell, symbol in enumerate(text) if symbol in wanted)

        players = cells("player", "player_on_target")
        targets = cells("target", "box_on_target", "player_on_target")
        boxes = cells("box", "box_on_target")
        rim = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
        if players.bit_count() != 1 or boxes.bit_count() != targets.bit_count() or not boxes:
            raise ValueError(
                f"Sokoban: board {text!r} needs one player and as many boxes as targets, at least one"
            )
        if set(rim) != {symbols["wall"]}:
            raise ValueError(f"Sokoban: board {text!r} is not closed by walls all round")
        floor = cells("floor") | players | targets | boxes
        return cls(len(rows), columns, floor, targets, boxes, players.bit_length() - 1)


def cells_of(bits: int) -> list[int]:
    """The cell numbers in a set of cells, ascending.

    >>> cells_of(0b1010)
    [1, 3]
    """
    cells = []
    while bits:
        lowest = bits & -bits
        cells.append(lowest.bit_length() - 1)
        bits ^= lowest
    return cells

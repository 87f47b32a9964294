"""What a thought says about the state, read by patterns, and whether it is so.

Read are, in any case of letters and with ``no`` or ``not`` before the thing:

* places: ``Player (1,2)``, ``the goal is at (3, 0)``, ``boxes at (2,2) and (3,4)``, as (row, column);
* neighbours: ``Left: hole``, ``up is a wall``;
* directions: ``the goal is below``, ``box to the right``, ``the target is up and left``, seen from the player;
* names: each thing that is named although another of its family is there, such as an arm of another bandit.

Whatever else a thought says is no claim, so it neither helps nor harms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from starpo.environments.records import Cell, StateFacts

#: Word -> (direction, change of row, change of column).
_DIRECTIONS: Final = {
    word: (name, down, right)
    for name, down, right, words in (
        ("left", 0, -1, ("left", "west")),
        ("right", 0, 1, ("right", "east")),
        ("up", -1, 0, ("up", "above", "north")),
        ("down", 1, 0, ("down", "below", "south")),
    )
    for word in words
}
_PLAYER: Final = "player"
_ME: Final = ("player", "i", "me", "you")
_CELL: Final = re.compile(r"\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")
_VERB: Final = (
    r"(?:is|are|am|was|were|stands?|lies?|located|directly|just|now|at|on|in|to|the|my|your|one|step)"
)
_ARTICLE: Final = r"(?:an?|the)"
#: Blanks are counted: two repeats side by side would take quadratic time over a long row of them.
_CELL_TEXT: Final = r"\(\s{0,2}\d{1,4}\s{0,2},\s{0,2}\d{1,4}\s{0,2}\)"
#: Patterns that ignore case take the dotless and the dotted one for the letter i, and ``casefold`` does not.
_DOTLESS: Final = {0x131: "i", 0x130: "I"}


@dataclass(frozen=True)
class Claim:
    """One thing that a text says about the state."""

    start: int
    """Where it begins in the text."""
    end: int
    """Where it ends."""
    true: bool
    """Whether the state agrees."""
    names: bool = False
    """It only names a thing."""


def claims(text: str, state: StateFacts) -> list[Claim]:
    """All claims of ``text``, in the order of their places; each piece of text is read once.

    Example: next to the upper left corner ``Left: edge. The goal is up.`` are a true and a false one.
    """
    found: list[Claim] = []
    taken = bytearray(len(text))
    for claim in _read(text.translate(_DOTLESS), state):
        if not any(taken[claim.start : claim.end]):
            taken[claim.start : claim.end] = b"\1" * (claim.end - claim.start)
            found.append(claim)
    return sorted(found, key=lambda claim: claim.start)


def _read(text: str, state: StateFacts) -> Iterator[Claim]:
    things = frozenset(state.places)
    beside = frozenset(word for words in state.around.values() for word in words)
    if things or beside:
        places, neighbours, directions = _patterns(things, things | beside)
        for match in places.finditer(text):
            thing = _thing(match["thing"], things)
            named = {(int(row), int(column)) for row, column in _CELL.findall(match["cells"])}
            yield Claim(*match.span(), (named <= state.places[thing]) != bool(match["no"]))
        for match in neighbours.finditer(text):
            direction, _, _ = _DIRECTIONS[match["direction"].casefold()]
            there = _thing(match["thing"], things | beside) in state.around.get(direction, frozenset())
            yield Claim(*match.span(), there != bool(match["no"]))
        for match in directions.finditer(text):
            thing = _thing(match["thing"], things | beside)
            ways = [match[name].casefold() for name in ("direction", "second") if match[name]]
            yield Claim(*match.span(), _lies(thing, ways, state) != bool(match["no"]))
    for match in _named(state.present | state.absent).finditer(text) if state.present else ():
        there = match[0].casefold() in {name.casefold() for name in state.present}
        yield Claim(*match.span(), there, names=True)


def _lies(thing: str, ways: list[str], state: StateFacts) -> bool:
    """Whether one of the things lies that way of the player; of what has no places, as the next cell."""
    steps = [_DIRECTIONS[way] for way in ways]
    if thing not in state.places:
        return all(thing in state.around.get(name, frozenset()) for name, _, _ in steps)
    return any(
        all((cell[0] - row) * down + (cell[1] - column) * right > 0 for _, down, right in steps)
        for row, column in state.places.get(_PLAYER, frozenset[Cell]())
        for cell in state.places[thing]
    )


@lru_cache(maxsize=64)
def _patterns(things: frozenset[str], anything: frozenset[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns of places, neighbours and directions."""
    no = rf"(?:\b(?P<no>no|not)\s{{1,2}}(?:{_ARTICLE}\s{{1,2}})?)?"
    thing, any_thing = _plural({*things, *_ME} if _PLAYER in things else things), _plural(anything)
    direction = "|".join(_DIRECTIONS)
    return tuple(
        re.compile(pattern, re.IGNORECASE)
        for pattern in (
            rf"{no}\b(?P<thing>{thing})\b(?:\s{{1,2}}{_VERB}\b){{0,4}}\s{{0,2}}[:=]?\s{{0,2}}"
            rf"(?P<cells>{_CELL_TEXT}(?:\s{{0,2}}(?:,|and|,\s?and)?\s{{0,2}}{_CELL_TEXT})*)",
            rf"\b(?P<direction>{direction})(?:\s?[:=]|\s{{1,2}}(?:is|lies))\s{{0,2}}(?:(?P<no>no|not)\s{{1,2}})?"
            rf"(?:{_ARTICLE}\s{{1,2}})?(?P<thing>{any_thing})\b",
            rf"{no}\b(?P<thing>{any_thing})\b(?:\s{{1,2}}{_VERB}\b){{0,5}}\s{{1,2}}(?P<direction>{direction})\b"
            rf"(?:\s?(?:and|,|-)\s?(?P<second>{direction})\b(?!\s?[:=]))?(?!\s?[:=])",
        )
    )


@lru_cache(maxsize=64)
def _named(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{_either(names)})\b", re.IGNORECASE)


def _plural(words: frozenset[str] | set[str]) -> str:
    return rf"(?:{_either(words)})(?:e?s)?"


def _either(words: frozenset[str] | set[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _thing(word: str, things: frozenset[str]) -> str:
    """The thing that ``word`` means, in the singular and as the environment spells it."""
    low = word.casefold()
    if low in _ME:
        return _PLAYER
    known = {thing.casefold(): thing for thing in things}
    return next(known[form] for form in (low, low.removesuffix("s"), low.removesuffix("es")) if form in known)

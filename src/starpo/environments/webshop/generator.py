"""Made-up catalogues from a seed: a shop for tests, benchmarks and training without WebShop's data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from starpo.environments.webshop.catalogue import Catalogue, CatalogueBuilder
from starpo.environments.webshop.files import GoalKind
from starpo.environments.webshop.goals import Wish
from starpo.environments.webshop.product import BREADCRUMB_SEPARATOR, product_of
from starpo.environments.webshop.vocabulary import (
    ATTRIBUTES,
    BRANDS,
    EASY_COLOURS,
    EASY_NOUNS,
    EASY_QUALITIES,
    KINDS,
    LOOKS,
    OPTION_VALUES,
    PLACES,
    Kind,
)

_ID_LETTERS: Final = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
#: Every product's number times this, modulo a power of the alphabet's size, gives ids that look unordered.
_ID_STEP: Final = 982_451_653


class Difficulty(StrEnum):
    """How much there is to read and to get right."""

    EASY = "easy"
    """Two-word titles, one attribute that is in the title, one option of six colours."""
    NORMAL = "normal"
    """Up to two options, one or two wanted attributes."""
    HARD = "hard"
    """Always two options of all values, two or three wanted attributes, many near duplicates."""


@dataclass(frozen=True)
class _Level:
    wanted_attributes: tuple[int, int]  # least, most
    option_values: tuple[int, int]  # least, most values of an option
    no_options: float  # share of products without options
    brands: int  # fewer brands and looks make more products alike
    looks: int


_LEVELS: Final = {
    Difficulty.NORMAL: _Level((1, 2), (2, 5), 0.15, len(BRANDS), len(LOOKS)),
    Difficulty.HARD: _Level((2, 3), (4, 8), 0.0, 4, 3),
}
MAX_EASY: Final = len(EASY_QUALITIES) * len(EASY_NOUNS)


def generate_catalogue(size: int, seed: int, difficulty: Difficulty, goals: GoalKind) -> Catalogue:
    """``size`` products; equal arguments give equal catalogues in every process."""
    builder = CatalogueBuilder()
    for record, attributes, wishes in generate_records(size, seed, difficulty, goals):
        builder.add(product_of(record, attributes), wishes)
    return builder.build()


def generate_records(
    size: int, seed: int, difficulty: Difficulty, goals: GoalKind
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], list[Wish]]]:
    """Raw records as WebShop's product files hold them, each with its attributes and wishes.

    The products do not depend on the kind of goals. Raises ``ValueError`` on a size that is not positive or that
    the easy words cannot fill, and for human goals of an easy catalogue, which has none.
    """
    if size < 1 or (difficulty is Difficulty.EASY and size > MAX_EASY):
        sizes = f"1 to {MAX_EASY}" if difficulty is Difficulty.EASY else "1 or more"
        raise ValueError(f"WebShop: products is {size!r}, allowed for {difficulty.value} catalogues: {sizes}")
    draw, speech = (
        np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, size, purpose])))
        for purpose in (0, 1)
    )
    if difficulty is Difficulty.EASY:
        if goals == "human":
            raise ValueError("WebShop: goals is 'human', allowed for easy catalogues: synthetic")
        yield from _easy_records(size, draw)
        return
    for number in range(size):
        record, attributes, thing = _record(number, KINDS[number % len(KINDS)], _LEVELS[difficulty], draw)
        least, most = _LEVELS[difficulty].wanted_attributes
        wanted = attributes[: int(draw.integers(least, most + 1))]
        wish = Wish(f"Find me {', '.join(wanted)} {thing}", wanted)
        if goals == "human":
            wish = _spoken_wish(thing, wanted, record["customization_options"], speech)
        yield record, attributes, [wish]


def _easy_records(
    size: int, draw: np.random.Generator
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], list[Wish]]]:
    # Nouns change fastest, so that even a small catalogue has several qualities of a noun.
    nouns = EASY_NOUNS[: max(1, -(-size // len(EASY_QUALITIES)))]
    pairs = [(quality, noun) for quality in EASY_QUALITIES for noun in nouns][:size]
    for number, at in enumerate(draw.permutation(size)):
        quality, noun = pairs[at]
        record = {
            "asin": product_id(number),
            "name": f"{quality} {noun}",
            "query": noun,
            "category": "home",
            "product_category": _breadcrumb("home", noun),
            "full_description": "",
            "small_description": [],
            "pricing": f"${int(draw.integers(5, 60))}.00",
            "customization_options": {"color": [{"value": colour} for colour in EASY_COLOURS]},
        }
        yield record, (quality,), [Wish(f"find {quality} {noun}", (quality,))]


def _record(
    number: int, kind: Kind, level: _Level, draw: np.random.Generator
) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """A product's raw record, its attributes and what it is in a few words."""
    material = _one(kind.materials, draw)
    brand, look, place = (
        _one(BRANDS[: level.brands], draw),
        _one(LOOKS[: level.looks], draw),
        _one(PLACES, draw),
    )
    pool = ATTRIBUTES[kind.department]
    attributes = tuple(pool[at] for at in draw.permutation(len(pool))[: int(draw.integers(3, 6))])
    options = _options(kind, level, draw)
    title = f"{brand} {look} {material} {kind.noun}, {attributes[0].title()}, {place}"
    record = {
        "asin": product_id(number),
        "name": title,
        "query": kind.query,
        "category": kind.department,
        "product_category": _breadcrumb(kind.department.title(), *kind.branch.split("/")),
        "full_description": (
            f"The {look.lower()} {kind.noun.lower()} by {brand}, {material.lower()}, for {place.lower()}. "
            f"It is known for {', '.join(attributes[:-1])} and {attributes[-1]}."
        ),
        "small_description": [
            f"{each.capitalize()}: {_one(LOOKS, draw).lower()} feel" for each in attributes
        ],
        "pricing": _pricing(kind, draw),
        "customization_options": options,
    }
    return record, attributes, f"{material.lower()} {kind.noun.lower()}"


def product_id(number: int) -> str:
    """A ten-character id, different for each number from 0 to 10^12."""
    code = (number + 1) * _ID_STEP % len(_ID_LETTERS) ** 8
    places = (code // len(_ID_LETTERS) ** place % len(_ID_LETTERS) for place in range(8))
    return "B0" + "".join(_ID_LETTERS[digit] for digit in places)


def _breadcrumb(*parts: str) -> str:
    return f" {BREADCRUMB_SEPARATOR} ".join(parts)


def _options(kind: Kind, level: _Level, draw: np.random.Generator) -> dict[str, list[dict[str, str]]]:
    if draw.random() < level.no_options:
        return {}
    names = kind.options if level.no_options == 0 else kind.options[: int(draw.integers(1, 3))]
    options = {}
    for name in names:
        values = OPTION_VALUES[name]
        least, most = level.option_values
        count = min(int(draw.integers(least, most + 1)), len(values))
        first = sorted(draw.permutation(len(values))[:count].tolist())
        options[name] = [{"value": values[at]} for at in first]
    return options


def _pricing(kind: Kind, draw: np.random.Generator) -> str:
    """One price, or for one product in eight a range."""
    low, high = kind.prices
    price = low + (high - low) * float(draw.random()) ** 2
    if draw.random() < 1 / 8:
        return f"${price:.2f}${price * 1.4:.2f}"
    return f"${price:.2f}"


_OPENINGS: Final = ("i am looking for a", "i need a", "show me some", "i would like to buy a", "find me a")


def _spoken_wish(
    thing: str, wanted: tuple[str, ...], options: dict[str, list[dict[str, str]]], draw: np.random.Generator
) -> Wish:
    """A wish as people write it: the wanted options stand in the sentence and are kept as values alone."""
    chosen = {
        name: _one(values, draw)["value"].replace("/", " | ").lower() for name, values in options.items()
    }
    sentence = f"{_one(_OPENINGS, draw)} {thing} that is {' and '.join(wanted)}"
    if chosen:
        sentence += f", {' and '.join(f'{name} {value}' for name, value in chosen.items())}"
    return Wish(sentence, wanted, tuple((None, value) for value in chosen.values()))


def _one(items: Any, draw: np.random.Generator) -> Any:
    return items[int(draw.integers(len(items)))]

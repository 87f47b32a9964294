"""How well a purchase fulfils a goal (WebShop, arXiv 2207.01206, section 3.1; text-only server's variant).

score = r_type * (attribute hits + option hits + price ok) / (attributes + options + 1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rapidfuzz import fuzz, utils

from starpo.environments.webshop.nouns import title_nouns
from starpo.environments.webshop.product import BREADCRUMB_SEPARATOR, Goal, Product

#: Two texts match when their token-set ratio, rounded to a whole number, is above this.
MATCH_ABOVE: Final = 85
#: In this order: the first colour found inside an option value replaces the whole value.
_COLOURS: Final = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey "
    "heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight "
    "mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow "
    "red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal "
    "tiger turquoise violet walnut wheat white wine yellow"
)
COLOURS: Final = tuple(_COLOURS.split())
#: Characters that the published comparison drops before it compares.
_DROPPED: Final = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's score and what it is made of."""

    total: float
    """0 to 1; 1 means fulfilled in every respect."""
    type_factor: float
    """0, 0.1, 0.5 or 1: is it the kind of product that was wanted?"""
    title_score: float
    """Share of the wanted title's nouns that the bought title has; 0.2 if it has none."""
    query_match: bool
    category_match: bool
    attribute_hits: int
    option_hits: int
    price_ok: bool


def score_purchase(product: Product, chosen: Iterable[str], goal: Goal) -> Score:
    """The score of buying ``product`` with the ``chosen`` option values."""
    title_score = _title_score(product.title, goal.title)
    query_match = product.query == goal.query
    category_match = len(_parts(product.breadcrumb) & _parts(goal.breadcrumb)) >= 2
    factor = _type_factor(title_score, known_type=query_match or category_match)
    values = [normalize_colour(value) for value in chosen]
    option_hits = sum(any(similar(value, wanted) for value in values) for wanted in wanted_options(goal))
    attribute_hits = sum(has_attribute(product, wanted) for wanted in goal.attributes)
    price_ok = product.price <= goal.price_limit
    parts = len(goal.attributes) + len(goal.options) + 1
    total = (attribute_hits + option_hits + price_ok) / parts * factor
    return Score(
        total, factor, title_score, query_match, category_match, attribute_hits, option_hits, price_ok
    )


def type_factor(product: Product, goal: Goal) -> float:
    """``Score.type_factor`` alone, which bounds what the product can score."""
    known = product.query == goal.query or len(_parts(product.breadcrumb) & _parts(goal.breadcrumb)) >= 2
    return _type_factor(_title_score(product.title, goal.title), known_type=known)


def _type_factor(title_score: float, *, known_type: bool) -> float:
    # A title without a common noun overrides even an equal query; so the benchmark has it.
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if known_type or title_score > 0.2 else 0.5


def _title_score(bought: str, wanted: str) -> float:
    nouns = title_nouns(wanted)
    if not nouns:
        return 0.2
    return len(_noun_set(wanted) & _noun_set(bought)) / len(nouns)


@lru_cache(maxsize=1 << 16)
def _noun_set(title: str) -> frozenset[str]:
    return frozenset(title_nouns(title))


@lru_cache(maxsize=1 << 14)
def _parts(breadcrumb: str) -> frozenset[str]:
    return frozenset(part.strip() for part in breadcrumb.split(BREADCRUMB_SEPARATOR))


def has_attribute(product: Product, wanted: str) -> bool:
    """Whether a property is among the product's attributes or literally in its texts."""
    if any(similar(each, wanted) for each in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


@lru_cache(maxsize=1 << 16)
def normalize_colour(value: str) -> str:
    """The first of ``COLOURS`` that occurs in ``value``, else ``value``.

    >>> normalize_colour("navy blue"), normalize_colour("stonewash"), normalize_colour("x-large")
    ('blue', 'ash', 'x-large')
    """
    return next((colour for colour in COLOURS if colour in value), value)


@lru_cache(maxsize=1 << 14)
def wanted_options(goal: Goal) -> tuple[str, ...]:
    """The texts that chosen values are compared with, one per wanted option.

    A value without its option's name is colour-normalised. With a name the text is the printed (name, value)
    pair, unless the name or the value is itself a colour, which then stands alone.
    """
    texts = []
    for name, value in goal.options:
        if name is None:
            texts.append(normalize_colour(value))
        else:
            texts.append(next((each for each in COLOURS if each in (name, value)), str((name, value))))
    return tuple(texts)


@lru_cache(maxsize=1 << 18)
def similar(one: str, other: str) -> bool:
    """Whether the words of one text are nearly contained in the other's; order and extra words do not count.

    >>> similar("noise cancelling", "noise cancellation"), similar("grey", "gray")
    (True, False)
    """
    return token_set_ratio(one, other) > MATCH_ABOVE


def token_set_ratio(one: str, other: str) -> int:
    """Token-set ratio, 0 to 100, of the texts in lower case with everything but letters and digits blanked."""
    return round(fuzz.token_set_ratio(_comparable(one), _comparable(other)))


@lru_cache(maxsize=1 << 16)
def _comparable(text: str) -> str:
    return str(utils.default_process(text.translate(_DROPPED)))

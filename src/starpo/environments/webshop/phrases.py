"""Pieces of the shop's texts that a tokenizer made for it holds as single tokens."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from starpo.environments.webshop.actions import CLICK, SEARCH
from starpo.environments.webshop.catalogue import Catalogue
from starpo.environments.webshop.pages import SEPARATOR, Button

#: Up to this many products' ids, titles and options are phrases too.
MAX_NAMED_PRODUCTS: Final = 100


@lru_cache(maxsize=4)
def phrases_of(catalogue: Catalogue) -> tuple[str, ...]:
    """Constant pieces of the pages and, of a small catalogue, the names on them."""
    start = ("Instruction:", "")
    fixed = [
        SEPARATOR,
        SEPARATOR.join(("WebShop", *start)),
        SEPARATOR.join(start),
        SEPARATOR.join(("", "Search")),
        SEPARATOR.join(("", Button.BACK, Button.PREVIOUS, "")),
        SEPARATOR.join(("", Button.BACK, "Page ")),
        " (Total results: ",
        SEPARATOR.join((")", Button.NEXT, "")),
        SEPARATOR.join((")", Button.PREVIOUS, Button.NEXT, "")),
        SEPARATOR.join(("", "Price: $")),
        SEPARATOR.join(("", "Rating: N.A.", Button.DESCRIPTION, Button.FEATURES, Button.REVIEWS, Button.BUY)),
        ", and price lower than ",
        ".00 dollars",
        f"{SEARCH}[",
        f"{CLICK}[",
        *(f"{CLICK}[{button.lower()}]" for button in Button),
    ]
    if len(catalogue.products) > MAX_NAMED_PRODUCTS:
        return tuple(fixed)
    names = {"find ": None}
    for product in catalogue.products:
        names |= dict.fromkeys((product.id, product.id.lower()))
        for option, values in product.options.items():
            names |= dict.fromkeys((f" with {option}: ", *values))
        names |= dict.fromkeys(product.title.split())
    return (*fixed, *names)

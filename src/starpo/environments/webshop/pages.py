"""What each page of the shop shows and what can be clicked on it.

A page is the text nodes of WebShop's HTML pages in their order, joined by `` [SEP] `` (its text mode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from starpo.environments.webshop.product import Product

SEPARATOR: Final = " [SEP] "
#: Products on a results page.
PAGE_SIZE: Final = 10


class PageKind(StrEnum):
    """The shop's pages."""

    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    SUB_PAGE = "sub_page"
    DONE = "done"


class Button(StrEnum):
    """Buttons; a click names them in lower case."""

    BACK = "Back to Search"
    NEXT = "Next >"
    PREVIOUS = "< Prev"
    DESCRIPTION = "Description"
    FEATURES = "Features"
    REVIEWS = "Reviews"
    ATTRIBUTES = "Attributes"
    BUY = "Buy Now"


#: Buttons of an item page that open one of its sub-pages.
SUB_PAGES: Final = (Button.DESCRIPTION, Button.FEATURES, Button.REVIEWS, Button.ATTRIBUTES)


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A value to choose on an item page."""

    option: str
    value: str


#: What a click leads to: a button, a product by its position in the catalogue, or an option value.
Target = Button | int | OptionValue


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its text and what its labels lead to."""

    text: str
    targets: dict[str, Target]
    """By label as a click names it (lower case), in the order in which possible actions are listed."""


def search_page(instruction: str) -> Page:
    """The start: the instruction and a search box."""
    return Page(_join("WebShop", "Instruction:", instruction, "Search"), {})


def results_page(
    instruction: str, hits: Sequence[int], shown: Sequence[Product], number: int, size: int
) -> Page:
    """Page ``number`` (from 1) of the ``hits`` (catalogue positions), of which ``shown`` are on this page.

    There is a next page only while hits are left, unlike in the published server.
    """
    buttons = [Button.BACK]
    if number > 1:
        buttons.append(Button.PREVIOUS)
    if number * size < len(hits):
        buttons.append(Button.NEXT)
    targets: dict[str, Target] = {button.lower(): button for button in buttons}
    first = (number - 1) * size
    targets.update({product.id.lower(): hits[first + at] for at, product in enumerate(shown)})
    lines = [text for product in shown for text in (product.id, product.title, product.price_label)]
    total = f"Page {number} (Total results: {len(hits)})"
    return Page(
        _join("Instruction:", instruction, Button.BACK, total, *buttons[1:], *lines),
        targets,
    )


def item_page(instruction: str, product: Product, *, show_attributes: bool) -> Page:
    """A product with its options. Chosen options are not marked."""
    below = [button for button in SUB_PAGES if show_attributes or button is not Button.ATTRIBUTES]
    buttons = (Button.BACK, Button.PREVIOUS, *below, Button.BUY)
    targets: dict[str, Target] = {button.lower(): button for button in buttons}
    lines = []
    for option, values in product.options.items():
        lines += [option, *values]
        for value in values:
            # A button's label stays the button's; of equal values the last option's is clicked, as published.
            if not isinstance(targets.get(value), Button):
                targets[value] = OptionValue(option, value)
    facts = (product.title, f"Price: {product.price_label}", "Rating: N.A.")
    text = _join(
        "Instruction:", instruction, Button.BACK, Button.PREVIOUS, *lines, *facts, *below, Button.BUY
    )
    return Page(text, targets)


def sub_page(instruction: str, product: Product, which: Button) -> Page:
    """One of ``SUB_PAGES`` of a product; there are no reviews."""
    texts = {
        Button.DESCRIPTION: (product.description,),
        Button.FEATURES: product.bullets,
        Button.ATTRIBUTES: product.attributes,
    }.get(which, ())
    return Page(
        _join("Instruction:", instruction, Button.BACK, Button.PREVIOUS, *texts),
        {button.lower(): button for button in (Button.BACK, Button.PREVIOUS)},
    )


def done_page(score: float) -> Page:
    """After the purchase; nothing can be clicked."""
    return Page(_join("Thank you for shopping with us!", f"Your score (min 0.0, max 1.0): {score}"), {})


def _join(*texts: str) -> str:
    return SEPARATOR.join(text for text in map(str.strip, texts) if text)

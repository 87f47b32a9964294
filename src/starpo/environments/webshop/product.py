"""What a shop sells and what a customer wants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

#: Price of a product whose record names none, dollars.
DEFAULT_PRICE: Final = 100.0
#: Price limit of a goal that has none, dollars.
NO_LIMIT: Final = 1_000_000.0
#: Between the parts of a breadcrumb: a single right-pointing angle quotation mark.
BREADCRUMB_SEPARATOR: Final = "\u203a"
#: Longer product ids do not belong to products.
MAX_ID: Final = 10


@dataclass(frozen=True, slots=True)
class Product:
    """One product, as pages show it and the reward judges it."""

    id: str
    """At most ``MAX_ID`` characters, unique in its catalogue."""
    title: str
    query: str
    """Search term it was collected under, lower case; equal terms count as the same type."""
    category: str
    """Department."""
    breadcrumb: str
    """Path in the department, parts joined by ``BREADCRUMB_SEPARATOR``."""
    description: str
    bullets: tuple[str, ...]
    """Feature lines."""
    options: Mapping[str, tuple[str, ...]]
    """Values to choose from, lower case, by lower-case option name."""
    attributes: tuple[str, ...]
    """Properties mined from its texts; not shown unless the shop is told to."""
    price_label: str
    """Price as shown: ``$12.5`` or ``$8.0 to $10.0``."""
    price: float
    """Price that the reward compares with the goal's limit, dollars."""

    def search_text(self) -> str:
        """What the search engine indexes: title, description, first feature and options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.title, self.description, self.bullets[0] if self.bullets else "", options))


@dataclass(frozen=True, slots=True)
class Goal:
    """One wish of a customer. Raises ``ValueError`` without an attribute or with a limit that is not positive."""

    product_id: str
    """The product it was written for, which fulfils it."""
    title: str
    """That product's title, query and breadcrumb: the type of what is wanted."""
    query: str
    breadcrumb: str
    request: str
    """The wish in words, without options and price."""
    instruction: str
    """All that the customer says: request, options, price limit."""
    attributes: tuple[str, ...]
    """Wanted properties, at least one."""
    options: tuple[tuple[str | None, str], ...]
    """Wanted (option name, value); the name is None where people wrote values alone."""
    price_limit: float
    """Highest acceptable price, dollars; ``NO_LIMIT`` for none."""
    weight: float = 1.0
    """Relative frequency in a draw by weight."""

    def __post_init__(self) -> None:
        if not self.attributes:
            raise ValueError(f"goal for product {self.product_id!r}: needs at least one attribute")
        if not self.price_limit > 0:
            raise ValueError(
                f"goal for product {self.product_id!r}: price limit is {self.price_limit!r}, expected above 0"
            )


class RecordError(ValueError):
    """A raw record lacks something; the message says what was found and what was expected."""


def product_of(record: Mapping[str, Any], attributes: tuple[str, ...]) -> Product:
    """The product of one raw record of an ``items_shuffle`` file. Raises ``RecordError``."""
    bullets = record.get("small_description") or ""
    prices, label = prices_of(_text(record, "pricing", required=False), _text(record, "asin"))
    return Product(
        id=_text(record, "asin"),
        title=_text(record, "name"),
        query=_text(record, "query").lower().strip(),
        category=_text(record, "category"),
        breadcrumb=_text(record, "product_category"),
        description=_text(record, "full_description", required=False),
        bullets=tuple(map(str, bullets)) if isinstance(bullets, list) else (str(bullets),),
        options=options_of(record.get("customization_options")),
        attributes=attributes,
        price_label=label,
        price=prices,
    )


def _text(record: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    value = record.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise RecordError(f"{key!r} is {value!r}, expected a text")
    return value


def options_of(raw: Any) -> dict[str, tuple[str, ...]]:
    """Values by option name from a record's customization options: lower case, ``/`` becomes `` | ``."""
    if not raw:
        return {}
    if not isinstance(raw, Mapping):
        raise RecordError(f"'customization_options' is {raw!r}, expected a mapping or nothing")
    options: dict[str, tuple[str, ...]] = {}
    for name, values in raw.items():
        if values is None:
            continue
        try:
            options[name.lower()] = tuple(
                each["value"].strip().replace("/", " | ").lower() for each in values
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise RecordError(f"option {name!r} is {values!r}, expected a list of {{value: text}}") from error
    return options


def prices_of(pricing: str, product_id: str) -> tuple[float, str]:
    """(price for the reward, label) of a price text such as ``$8.00$10.00``; dollars.

    A range is settled by one uniform draw that depends on the product's id alone, so that every process and every
    order of loading has the same price. Raises ``RecordError`` on a text without a price.
    """
    if not pricing:
        return DEFAULT_PRICE, f"${DEFAULT_PRICE}"
    try:
        amounts = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation as error:
        raise RecordError(f"'pricing' is {pricing!r}, expected dollar amounts such as $8.00$10.00") from error
    if not amounts:
        raise RecordError(f"'pricing' is {pricing!r}, expected dollar amounts such as $8.00$10.00")
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    low, high = amounts[:2]
    return low + (high - low) * share_of("price", product_id), f"${low} to ${high}"


def share_of(purpose: str, name: str) -> float:
    """A number in [0, 1), uniform over names and fixed for each (purpose, name)."""
    digest = hashlib.blake2b(f"{purpose}:{name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53

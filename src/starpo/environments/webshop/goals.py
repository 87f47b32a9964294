"""What customers want of a catalogue: goals built from its products, as WebShop builds them.

*Synthetic* goals are one per combination of a product's option values; a large catalogue has millions, so they are
numbered and made when asked for. *Human* goals are written by people, a few for some of the products.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from starpo.environments.webshop.product import NO_LIMIT, Goal, Product, share_of

#: Price limits are multiples of this, dollars, below ``LIMIT_END``.
LIMIT_STEP: Final = 10
LIMIT_END: Final = 1000
#: Two different ones of this many limits next above the price are drawn, the larger counts.
LIMIT_CHOICES: Final = 4


@dataclass(frozen=True, slots=True)
class Wish:
    """What the attribute file or a person says about one product."""

    request: str
    """In words, without options and price."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str | None, str], ...] | None = None
    """Wanted options; None: every combination of the product's values, one goal each."""


def price_limit(price: float, product_id: str) -> float:
    """The limit of goals for a product that costs ``price`` dollars; a function of price and id alone."""
    limits = [float(each) for each in range(LIMIT_STEP, LIMIT_END, LIMIT_STEP) if each > price][
        :LIMIT_CHOICES
    ]
    if len(limits) < 2:
        return NO_LIMIT
    larger_of_each_pair = [high for high in range(1, len(limits)) for _ in range(high)]
    return limits[larger_of_each_pair[int(share_of("limit", product_id) * len(larger_of_each_pair))]]


def instruction_of(request: str, options: Iterable[tuple[str | None, str]], limit: float) -> str:
    """All that the customer says: ``request with color: red, and price lower than 40.00 dollars``."""
    named = ", and ".join(f"{name}: {value}" for name, value in options)
    price = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
    return f"{request}{' with ' + named if named else ''}{price}"


class GoalBook:
    """All goals of a catalogue, numbered in the order of its products."""

    def __init__(
        self,
        wishes: Iterable[tuple[int, Wish]],
        product: Callable[[int], Product],
        combinations: Mapping[int, int] | None = None,
    ) -> None:
        """``wishes``: (product's position, wish). ``product``: the product at a position.

        ``combinations`` may give the number of option combinations by position where it is known already.
        """
        self._product = product
        self._wishes: list[tuple[int, Wish]] = []
        counts: list[int] = []
        uses: Counter[str] = Counter()
        for position, wish in wishes:
            if wish.options is not None:
                count = 1
            elif combinations is not None:
                count = combinations[position]
            else:
                count = combination_count(product(position).options)
            if count and wish.attributes:
                self._wishes.append((position, wish))
                counts.append(count)
                for each in wish.attributes:
                    uses[each] += count
        self._ends = np.cumsum(counts, dtype=np.int64).tolist()
        self._weights = [
            1.0
            if wish.options is not None
            else sum(1 / uses[each] for each in wish.attributes) / len(wish.attributes)
            for _, wish in self._wishes
        ]
        self._cumulative = np.cumsum(np.array(self._weights) * np.array(counts)) if counts else np.zeros(0)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, number: int) -> Goal:
        if not 0 <= number < len(self):
            raise IndexError(f"goal {number} of {len(self)}")
        at = bisect_right(self._ends, number)
        return self._goal(at, number - (self._ends[at - 1] if at else 0))

    def draw(self, instance: np.random.Generator, *, by_weight: bool) -> Goal:
        """One goal, uniform over all or in proportion to the weights."""
        if not by_weight:
            return self[int(instance.integers(len(self)))]
        at = int(np.searchsorted(self._cumulative, instance.random() * self._cumulative[-1], side="right"))
        first = self._ends[at - 1] if at else 0
        return self._goal(at, int(instance.integers(self._ends[at] - first)))

    def _goal(self, at: int, combination: int) -> Goal:
        position, wish = self._wishes[at]
        product = self._product(position)
        options = wish.options if wish.options is not None else nth_combination(product.options, combination)
        limit = price_limit(product.price, product.id)
        return Goal(
            product_id=product.id,
            title=product.title,
            query=product.query,
            breadcrumb=product.breadcrumb,
            request=wish.request,
            # People's words name their options already.
            instruction=instruction_of(wish.request, () if wish.options is not None else options, limit),
            attributes=wish.attributes,
            options=options,
            price_limit=limit,
            weight=self._weights[at],
        )


def combination_count(options: Mapping[str, Sequence[str]]) -> int:
    """Number of ways to choose one value of every option; 1 without options."""
    return prod(len(values) for values in options.values())


def nth_combination(options: Mapping[str, Sequence[str]], number: int) -> tuple[tuple[str, str], ...]:
    """Combination ``number`` of the values, in the order of ``itertools.product`` over sorted option names.

    >>> nth_combination({"size": ("s", "l"), "color": ("red", "tan")}, 1)
    (('color', 'red'), ('size', 'l'))
    """
    chosen = []
    for name in sorted(options, reverse=True):
        number, at = divmod(number, len(options[name]))
        chosen.append((name, options[name][at]))
    return tuple(reversed(chosen))

"""A shop's immutable stock: products, search, goals. All environments of a process share one per source."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from starpo.environments.webshop.goals import GoalBook, Wish, combination_count
from starpo.environments.webshop.product import Product
from starpo.environments.webshop.search import IndexBuilder, SearchIndex

#: Most products that one search returns.
MAX_HITS: Final = 50
#: Searches whose results are remembered; members of a group ask for the same ones.
REMEMBERED_SEARCHES: Final = 1 << 12

#: First words that list products without the search engine: at random, by attribute, department or query.
RANDOM, BY_ATTRIBUTE, BY_CATEGORY, BY_QUERY = "<r>", "<a>", "<c>", "<q>"


class Catalogue:
    """Products by position, found by id, by words or by list."""

    def __init__(
        self,
        products: Sequence[Product],
        ids: Sequence[str],
        index: SearchIndex,
        lists: Mapping[tuple[str, str], Sequence[int]],
        goals: GoalBook,
    ) -> None:
        """``lists``: positions by (``BY_ATTRIBUTE``, …; value)."""
        self.products = products
        self.index = index
        self.goals = goals
        self._positions = {name: position for position, name in enumerate(ids)}
        self._lists = lists
        self._top = lru_cache(maxsize=REMEMBERED_SEARCHES)(self._ranked)

    def __deepcopy__(self, memo: object) -> Catalogue:
        """Itself: a copied environment shares the stock, which never changes."""
        return self

    def position(self, product_id: str) -> int:
        """Position of the product with this id. Raises ``KeyError``."""
        return self._positions[product_id]

    def search(self, query: str, dynamics: np.random.Generator) -> tuple[int, ...]:
        """Positions of the products that ``query`` finds, best first; luck decides only after ``<r>``."""
        first, _, rest = query.partition(" ")
        if first == RANDOM:
            size = len(self.products)
            return tuple(map(int, dynamics.choice(size, size=min(MAX_HITS, size), replace=False)))
        if first == BY_CATEGORY:
            return tuple(self._lists.get((first, rest.split(" ")[0].strip()), ()))
        if first in (BY_ATTRIBUTE, BY_QUERY):
            return tuple(self._lists.get((first, rest.strip()), ()))
        return self._top(query)

    def _ranked(self, query: str) -> tuple[int, ...]:
        return tuple(position for position, _ in self.index.top(query, MAX_HITS))


class CatalogueBuilder:
    """Takes products in order; with ``keep`` False only their search terms and lists stay in memory."""

    def __init__(self, *, keep: bool = True) -> None:
        self.ids: list[str] = []
        self.products: list[Product] = []
        self._keep = keep
        self._index = IndexBuilder()
        self._lists: dict[tuple[str, str], array[int]] = defaultdict(lambda: array("i"))
        self._wishes: list[tuple[int, Wish]] = []
        self._combinations: dict[int, int] = {}

    def add(self, product: Product, wishes: Iterable[Wish] = ()) -> None:
        """Append ``product`` and what is wished of it."""
        position = len(self.ids)
        self.ids.append(product.id)
        if self._keep:
            self.products.append(product)
        self._index.add(product.search_text())
        self._lists[BY_CATEGORY, product.category].append(position)
        self._lists[BY_QUERY, product.query].append(position)
        for attribute in dict.fromkeys(product.attributes):
            self._lists[BY_ATTRIBUTE, attribute].append(position)
        for wish in wishes:
            self._wishes.append((position, wish))
            self._combinations[position] = combination_count(product.options)

    def build(self, products: Sequence[Product] | None = None) -> Catalogue:
        """The catalogue; ``products`` gives them by position where they were not kept."""
        kept = self.products if products is None else products
        goals = GoalBook(self._wishes, kept.__getitem__, self._combinations)
        return Catalogue(kept, self.ids, self._index.build(self.ids), dict(self._lists), goals)

"""The best purchase for a goal and a way to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from starpo.environments.webshop.actions import CLICK, SEARCH
from starpo.environments.webshop.catalogue import Catalogue
from starpo.environments.webshop.environment import WebShop
from starpo.environments.webshop.nouns import title_nouns
from starpo.environments.webshop.pages import Button, PageKind
from starpo.environments.webshop.product import Goal, Product
from starpo.environments.webshop.reward import (
    has_attribute,
    normalize_colour,
    score_purchase,
    similar,
    type_factor,
    wanted_options,
)

#: Goals whose best purchases are remembered per catalogue.
REMEMBERED_GOALS: Final = 1 << 16
#: In larger catalogues a perfect score of the goal's own product ends the search for the best purchase.
MAX_SCANNED: Final = 20_000
#: Words that open a wish and say nothing about the product.
_FILLERS: Final = (
    "a an and am buy can could find for get give i i'd i'm in like looking me my need of please search show some the "
    "to want would you"
)
_FILLER_WORDS: Final = frozenset(_FILLERS.split())


@dataclass(frozen=True, slots=True)
class Purchase:
    """The most that a product can earn."""

    position: int
    """In the catalogue."""
    options: tuple[tuple[str, str], ...]
    """(option name, value) to choose, none beyond what the score needs, in the order of the page."""
    score: float


def best_reward(env: WebShop) -> float:
    """Largest score that any product with any options earns for the present goal, exactly."""
    return _best(env.catalogue, env.goal)[0].score


def optimal_actions_for(env: WebShop) -> list[str]:
    """Actions that lead from the present page to a best purchase; empty after the purchase.

    On the right product: the missing options, then Buy Now. On a results page that shows a best product: click the
    first of them. Otherwise search with words of the instruction if they find one within the first page, else
    with its title; a product that neither finds is looked for page by page.
    """
    session = env.session
    if session.kind is PageKind.DONE:
        return []
    purchases = {each.position: each for each in _best(env.catalogue, env.goal)}
    if session.product in purchases:
        purchase = purchases[session.product]
        missing = [pair for pair in purchase.options if session.options.get(pair[0]) != pair[1]]
        if not _spoilt(env, purchase):
            back = [_click(Button.PREVIOUS)] if session.kind is PageKind.SUB_PAGE else []
            return [*back, *(f"{CLICK}[{value}]" for _, value in missing), _click(Button.BUY)]
    if session.kind is PageKind.RESULTS:
        first = (session.number - 1) * env.page_size
        shown = session.hits[first : first + env.page_size]
        found = next((position for position in shown if position in purchases), None)
        if found is not None:
            return _open_and_buy(env, purchases[found])
    query, page, found = _way(env, frozenset(purchases))
    turns = [_click(Button.NEXT)] * (page - 1)
    return [f"{SEARCH}[{query}]", *turns, *_open_and_buy(env, purchases[found])]


def _click(button: Button) -> str:
    return f"{CLICK}[{button.lower()}]"


def _open_and_buy(env: WebShop, purchase: Purchase) -> list[str]:
    product = env.catalogue.products[purchase.position]
    chosen = [f"{CLICK}[{value}]" for _, value in purchase.options]
    return [f"{CLICK}[{product.id.lower()}]", *chosen, _click(Button.BUY)]


def _spoilt(env: WebShop, purchase: Purchase) -> bool:
    """Whether an option chosen already, which cannot be unchosen, keeps the purchase from its best score."""
    product = env.catalogue.products[purchase.position]
    chosen = {**env.session.options, **dict(purchase.options)}
    return score_purchase(product, chosen.values(), env.goal).total < purchase.score


def _way(env: WebShop, wanted: frozenset[int]) -> tuple[str, int, int]:
    """(query, results page, position) that shows one of the ``wanted`` products earliest."""
    goal = env.goal
    nobody = np.random.Generator(np.random.PCG64(0))
    title = env.catalogue.products[min(wanted)].title.lower()
    candidates = [query_of(goal), plain(goal.instruction), plain(title)]
    best: tuple[str, int, int] | None = None
    for query in candidates:
        hits = env.catalogue.search(query, nobody)
        at = next((rank for rank, position in enumerate(hits) if position in wanted), None)
        if at is not None and (best is None or at // env.page_size + 1 < best[1]):
            best = query, at // env.page_size + 1, hits[at]
        if best is not None and best[1] == 1:
            return best
    if best is None:
        # Every catalogue lists its products by query, in full.
        position = min(wanted)
        query = f"<q> {env.catalogue.products[position].query}"
        at = env.catalogue.search(query, nobody).index(position)
        best = query, at // env.page_size + 1, position
    return best


@lru_cache(maxsize=REMEMBERED_GOALS)
def query_of(goal: Goal) -> str:
    """The words of the wish that describe the product: the request without its opening.

    Example: ``Find me gluten free granola bars`` gives ``gluten free granola bars``.
    """
    words = plain(goal.request).split()
    start = next((at for at, word in enumerate(words) if word not in _FILLER_WORDS), 0)
    return " ".join(words[start:])


def plain(text: str) -> str:
    """``text`` in lower case without brackets, which end an action's argument, on one line."""
    return " ".join(re.sub(r"[\[\]]", " ", text.lower()).split())


_KNOWN: WeakKeyDictionary[Catalogue, dict[Goal, tuple[Purchase, ...]]] = WeakKeyDictionary()


def _best(catalogue: Catalogue, goal: Goal) -> tuple[Purchase, ...]:
    """All purchases with the largest score; of a huge catalogue the goal's own product alone where it is perfect."""
    known = _KNOWN.setdefault(catalogue, {})
    if goal not in known:
        if len(known) >= REMEMBERED_GOALS:
            known.clear()
        known[goal] = _search_best(catalogue, goal)
    return known[goal]


def _search_best(catalogue: Catalogue, goal: Goal) -> tuple[Purchase, ...]:
    own = catalogue.position(goal.product_id)
    first = _best_options(own, catalogue.products[own], goal)
    if first.score == 1.0 and len(catalogue.products) > MAX_SCANNED:
        return (first,)
    parts = len(goal.attributes) + len(goal.options) + 1
    best, floor = [first], first.score
    for position in _same_type_candidates(catalogue, goal):
        if position == own:
            continue
        product = catalogue.products[position]
        # Each bound assumes the best of what was not looked at yet; the cheapest comes first.
        hits = parts - (product.price > goal.price_limit)
        factor = type_factor(product, goal) if hits / parts >= floor else 0.0
        if hits / parts * factor < floor or not factor:
            continue
        hits -= sum(not has_attribute(product, each) for each in goal.attributes)
        if hits / parts * factor < floor:
            continue
        purchase = _best_options(position, product, goal)
        if purchase.score > floor:
            best, floor = [], purchase.score
        if purchase.score == floor > 0:
            best.append(purchase)
    return tuple(best)


def _same_type_candidates(catalogue: Catalogue, goal: Goal) -> Iterable[int]:
    """Positions of all products that can have a type factor above 0: those that share a noun with the goal's title.

    The search index holds every title, so a product without any of the nouns' terms has none of the nouns.
    """
    nouns = title_nouns(goal.title)
    return catalogue.index.holding(nouns) if nouns else range(len(catalogue.products))


def _best_options(position: int, product: Product, goal: Goal) -> Purchase:
    """The choice of option values with the most hits; each option gives one value, a value may hit several."""
    wanted = wanted_options(goal)
    # Hits of each value; only values that hit matter. Reached sets of hits, each with the choices that reach it.
    reached: dict[frozenset[int], tuple[tuple[str, str], ...]] = {frozenset(): ()}
    for option, values in product.options.items():
        gains = {}
        for value in values:
            normal = normalize_colour(value)
            hits = frozenset(at for at, each in enumerate(wanted) if similar(normal, each))
            # Of values with equal hits the literally wanted one is preferred: it is what the instruction names.
            literal = any(value == each for _, each in goal.options)
            if hits and (hits not in gains or literal):
                gains[hits] = value
        for hits, choices in list(reached.items()):
            for gain, value in gains.items():
                reached.setdefault(hits | gain, (*choices, (option, value)))
    most = max(reached, key=len)
    chosen = reached[most]
    return Purchase(position, chosen, score_purchase(product, [value for _, value in chosen], goal).total)

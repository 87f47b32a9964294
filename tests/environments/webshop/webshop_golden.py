"""The recorded WebShop server's catalogue and goals as ours, with its stand-in for the search engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starpo.environments.webshop.catalogue import Catalogue, CatalogueBuilder
from starpo.environments.webshop.environment import WebShop
from starpo.environments.webshop.goals import Wish
from starpo.environments.webshop.product import Goal, Product, product_of


class WordSearch(Catalogue):
    """Finds products that share a word with the query, in file order, as the recording's stand-in did."""

    def search(self, query, dynamics):
        asked = set(query.split())
        return tuple(
            at for at, product in enumerate(self.products) if asked & set(product.title.lower().split())
        )


def recorded_products(pages: dict[str, Any]) -> list[Product]:
    """Products of webshop_pages.json; prices of ranges as drawn in the recording."""
    return [
        replace(
            product_of(item, tuple(pages["made_up_attributes"][item["asin"]]["attributes"])),
            price=pages["price_used_for_reward"][item["asin"]],
        )
        for item in pages["made_up_items"]
    ]


def recorded_shop(pages: dict[str, Any]) -> WebShop:
    builder = CatalogueBuilder()
    for product in recorded_products(pages):
        entry = pages["made_up_attributes"][product.id]
        builder.add(product, [Wish(entry["instruction"], tuple(entry["instruction_attributes"]))])
    catalogue = builder.build()
    return WebShop(
        catalogue=WordSearch(
            catalogue.products, builder.ids, catalogue.index, catalogue._lists, catalogue.goals
        )
    )


def recorded_goal(goal: dict[str, Any], products: list[Product]) -> Goal:
    product = next(each for each in products if each.id == goal["asin"])
    return Goal(
        product_id=goal["asin"],
        title=product.title,
        query=goal["query"],
        breadcrumb=product.breadcrumb,
        request=goal["instruction"],
        instruction=goal["instruction"],
        attributes=tuple(goal["attributes"]),
        options=tuple(goal["goal_options"].items()),
        price_limit=goal["price_upper"],
        weight=goal["weight"],
    )

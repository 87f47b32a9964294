"""WebShop's own data files as a catalogue, read element by element.

``items_shuffle*.json`` is a list of products, ``items_ins_v2*.json`` an object with mined attributes and synthetic
instructions by product id, ``items_human_ins.json`` an object with lists of instructions written by people. Products
stay in their file: the catalogue keeps where each one lies and reads it when a page or the reward needs it.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, overload

from starpo.environments.webshop.catalogue import Catalogue, CatalogueBuilder
from starpo.environments.webshop.goals import Wish
from starpo.environments.webshop.json_stream import Element, stream_list, stream_object
from starpo.environments.webshop.product import MAX_ID, Product, RecordError, product_of
from starpo.errors import UserError

GoalKind = Literal["synthetic", "human"]

#: Names of the product files and of the attribute files that belong to them, small set first.
FILES: Final = {
    "items_shuffle_1000.json": "items_ins_v2_1000.json",
    "items_shuffle.json": "items_ins_v2.json",
}
HUMAN_FILE: Final = "items_human_ins.json"
#: Products kept decoded; a page visit decodes one in about 0.1 ms.
REMEMBERED_PRODUCTS: Final = 1 << 13


@dataclass(frozen=True)
class ShopFiles:
    """Where a catalogue's files are."""

    products: Path
    attributes: Path
    human: Path | None
    """None where goals are synthetic."""

    @classmethod
    def find(cls, path: str | Path, goals: GoalKind) -> ShopFiles:
        """The files for ``path``: a product file, or a folder that holds exactly one of the two.

        The others lie beside it under their published names. Raises :class:`UserError` naming what is missing.
        """
        given = Path(path)
        if given.is_dir():
            present = [name for name in FILES if (given / name).exists()]
            if len(present) != 1:
                found = " and ".join(present) or "none"
                raise UserError(
                    f"WebShop: folder {given} holds {found} of {' and '.join(FILES)}; give the path of the "
                    "product file to use"
                )
            given = given / present[0]
        if given.name not in FILES:
            raise UserError(
                f"WebShop: path is {str(path)!r}, expected a folder or a file named {' or '.join(FILES)}"
            )
        files = cls(given, given.with_name(FILES[given.name]), None)
        if goals == "human":
            files = cls(files.products, files.attributes, given.with_name(HUMAN_FILE))
        for each in (files.products, files.attributes, files.human):
            if each is not None and not each.exists():
                raise UserError(
                    f"WebShop: {each} is missing; docs/webshop.md says where the files come from and what else "
                    "they need"
                )
        return files


def load_catalogue(files: ShopFiles, limit: int | None = None) -> Catalogue:
    """The catalogue of the first ``limit`` products (None: all). Raises :class:`UserError` on damaged files."""
    attributes = _Attributes(files.attributes)
    human = None if files.human is None else dict(_human_wishes(files.human))
    builder = CatalogueBuilder(keep=False)
    store = _StoredProducts(files.products)
    seen: set[str] = set()
    for element in stream_list(files.products):
        if limit is not None and element.number > limit:
            break
        product_id = _id_of(files.products, element)
        if product_id == "nan" or len(product_id) > MAX_ID or product_id in seen:
            continue
        seen.add(product_id)
        product = _product(files.products, element, attributes.of(product_id))
        wishes = attributes.wishes(product_id) if human is None else human.get(product_id, [])
        builder.add(product, wishes)
        store.add(element, product.attributes)
    catalogue = builder.build(store)
    _check(files, catalogue, attributes, seen)
    return catalogue


def _check(files: ShopFiles, catalogue: Catalogue, attributes: _Attributes, ids: set[str]) -> None:
    if not ids:
        raise UserError(f"{files.products}: holds no product")
    if not any(attributes.knows(each) for each in ids):
        raise UserError(
            f"{files.attributes}: knows none of the {len(ids)} products of {files.products}; the files are of "
            "different sets"
        )
    if not len(catalogue.goals):
        source = files.attributes if files.human is None else files.human
        raise UserError(
            f"{source}: has no instruction for any of the {len(ids)} products of {files.products}"
        )


def _id_of(path: Path, element: Element) -> str:
    record = element.value
    product_id = record.get("asin") if isinstance(record, dict) else None
    if not isinstance(product_id, str):
        raise UserError(f"{path}: product {element.number} has no 'asin' text; found {str(record)[:80]!r}")
    return product_id


def _product(path: Path, element: Element, attributes: tuple[str, ...]) -> Product:
    try:
        return product_of(element.value, attributes)
    except RecordError as error:
        raise UserError(f"{path}: product {element.number} ({element.value['asin']}): {error}") from error


class _Attributes:
    """The attribute file: mined properties and the synthetic wish of each product."""

    def __init__(self, path: Path) -> None:
        self._attributes: dict[str, tuple[str, ...]] = {}
        self._wishes: dict[str, Wish] = {}
        # The same few thousand phrases occur millions of times.
        shared: dict[str, str] = {}
        for element in stream_object(path):
            entry = element.value
            if not isinstance(entry, dict):
                raise UserError(f"{path}: entry {element.key!r} is {entry!r}, expected an object")
            wanted = _phrases(path, element.key, entry, "instruction_attributes")
            self._attributes[element.key] = tuple(
                shared.setdefault(each, each) for each in _phrases(path, element.key, entry, "attributes")
            )
            if isinstance(entry.get("instruction"), str) and wanted:
                self._wishes[element.key] = Wish(entry["instruction"], wanted)

    def of(self, product_id: str) -> tuple[str, ...]:
        return self._attributes.get(product_id, ())

    def wishes(self, product_id: str) -> list[Wish]:
        wish = self._wishes.get(product_id)
        return [] if wish is None else [wish]

    def knows(self, product_id: str) -> bool:
        return product_id in self._attributes


def _human_wishes(path: Path) -> Iterator[tuple[str, list[Wish]]]:
    for element in stream_object(path):
        if not isinstance(element.value, list):
            raise UserError(f"{path}: entry {element.key!r} is {element.value!r}, expected a list")
        yield element.key, [wish for raw in element.value for wish in _human_wish(path, element.key, raw)]


def _human_wish(path: Path, key: str, raw: Any) -> list[Wish]:
    """The wish that ``raw`` describes; none where it names no attribute, as such goals are left out."""
    if not isinstance(raw, dict) or not isinstance(raw.get("instruction"), str):
        raise UserError(f"{path}: entry {key!r} holds {raw!r}, expected an object with an 'instruction' text")
    options = raw.get("instruction_options") or []
    if not isinstance(options, dict | list):
        raise UserError(
            f"{path}: entry {key!r}: instruction_options is {options!r}, expected a list or object"
        )
    pairs = options.items() if isinstance(options, dict) else [(None, value) for value in options]
    attributes = _phrases(path, key, raw, "instruction_attributes")
    return [Wish(raw["instruction"].strip("."), attributes, tuple(pairs))] if attributes else []


def _phrases(path: Path, key: str, entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = entry.get(field) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UserError(f"{path}: entry {key!r}: {field} is {value!r}, expected a list of texts")
    return tuple(value)


class _StoredProducts(Sequence[Product]):
    """Products that lie in their file; 12 bytes each here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._offsets = array("q")
        self._sizes = array("i")
        self._attributes: list[tuple[str, ...]] = []
        self._read = lru_cache(maxsize=REMEMBERED_PRODUCTS)(self._decode)

    def add(self, element: Element, attributes: tuple[str, ...]) -> None:
        self._offsets.append(element.offset)
        self._sizes.append(element.size)
        self._attributes.append(attributes)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, position: int) -> Product: ...
    @overload
    def __getitem__(self, position: slice) -> list[Product]: ...
    def __getitem__(self, position: int | slice) -> Product | list[Product]:
        if isinstance(position, slice):
            return [self._read(each) for each in range(*position.indices(len(self)))]
        if not 0 <= position < len(self):
            raise IndexError(f"product {position} of {len(self)}")
        return self._read(position)

    def _decode(self, position: int) -> Product:
        # A positioned read leaves no shared file position behind: safe after a fork and between threads.
        raw = os.pread(self._file.fileno(), self._sizes[position], self._offsets[position])
        try:
            return product_of(json.loads(raw), self._attributes[position])
        except (json.JSONDecodeError, RecordError) as error:
            raise UserError(
                f"{self._path}: changed since it was loaded (product at byte {self._offsets[position]}); "
                "start again"
            ) from error

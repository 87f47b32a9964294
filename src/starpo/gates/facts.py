"""A table as its rules look at it, with the intermediate results that several of them share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from starpo.gates.expected import Expected

Key = tuple[int, int]
"""(group, member) of a trajectory."""

NAMING = ("metric", "group", "member", "turn")
"""Columns that name a row in messages, where a table has them."""


class Facts:
    """A table and what is known of it beforehand.

    Args:
        table: with at least one row.
        expected: the facts that rules compare with; None: none is known.
    """

    def __init__(self, table: pa.Table, expected: Expected | None = None) -> None:
        self.table, self.expected, self.rows = table, expected or Expected(), table.num_rows
        self._extremes: dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]] = {}

    def column(self, name: str) -> NDArray[Any]:
        """[rows]; dictionaries as text, null numbers as NaN."""
        values = self.table[name]
        if pa.types.is_dictionary(values.type):
            # Its own conversion to numpy takes a null for the first word.
            values = values.cast(values.type.value_type)
        return values.to_numpy()

    def name(self, row: int) -> str:
        """``group 0 member 1 turn 1``."""
        keys = [key for key in NAMING if key in self.table.column_names]
        return " ".join(f"{key} {self.table[key][row].as_py()}" for key in keys)

    def lengths(self, column: str) -> NDArray[np.int64]:
        """[rows], length of each list; a null list has none."""
        return pc.fill_null(pc.list_value_length(self.table[column]), 0).to_numpy().astype(np.int64)

    def entries(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """[entries] each: all lists of the column after one another, and the rows that they are of."""
        values = pc.list_flatten(self.table[column]).to_numpy().astype(np.float64)
        return values, np.repeat(np.arange(self.rows), self.lengths(column))

    def extremes(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """[rows] each: smallest and largest finite entry of the list (0 without any), and whether all are."""
        if column not in self._extremes:
            values, owners = self.entries(column)
            finite = np.isfinite(values)
            low, high = np.full(self.rows, np.inf), np.full(self.rows, -np.inf)
            np.minimum.at(low, owners[finite], values[finite])
            np.maximum.at(high, owners[finite], values[finite])
            every = np.ones(self.rows, dtype=bool)
            every[owners[~finite]] = False
            some = np.isfinite(low)
            self._extremes[column] = np.where(some, low, 0.0), np.where(some, high, 0.0), every
        return self._extremes[column]

    @cached_property
    def _numbered(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[N] the first row of each trajectory, by rising key; [rows] the trajectory's number."""
        key = self.column("group").astype(np.int64) * 2**32 + self.column("member")
        _, firsts, index = np.unique(key, return_index=True, return_inverse=True)
        return firsts, index

    @property
    def index(self) -> NDArray[np.int64]:
        """[rows], number of the row's trajectory among ``keys``."""
        return self._numbered[1]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """[N], first row of each trajectory."""
        return self._numbered[0]

    @cached_property
    def lasts(self) -> NDArray[np.int64]:
        """[N], last row of each trajectory."""
        lasts = np.zeros(len(self.firsts), dtype=np.int64)
        np.maximum.at(lasts, self.index, np.arange(self.rows))
        return lasts

    @cached_property
    def keys(self) -> list[Key]:
        """The trajectories of the table, rising."""
        return list(
            zip(*(self.column(name)[self.firsts].tolist() for name in ("group", "member")), strict=True)
        )

    @cached_property
    def missing(self) -> set[Key]:
        """Trajectories without a row, of ``group_size`` in each group up to the highest number."""
        groups = max(self.keys[-1][0] + 1, self.expected.groups or 0)
        size = self.expected.group_size or 0
        return {(group, member) for group in range(groups) for member in range(size)} - set(self.keys)

    def at(self, where: NDArray[np.int64] | int, values: Any) -> NDArray[np.float64]:
        """[rows], ``values`` at the rows ``where`` and null elsewhere."""
        column = np.full(self.rows, np.nan)
        column[where] = values
        return column

    def words(self, wrong: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.object_]:
        """[rows], ``values`` as text where something is ``wrong`` and null elsewhere."""
        column = np.full(self.rows, None, dtype=object)
        column[wrong] = [str(value) for value in values[wrong]]
        return column

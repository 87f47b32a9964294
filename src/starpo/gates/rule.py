"""A data rule, the words for its breach, and the check of many rules on one table.

A rule is spelled once and read three times: by the check on every save, by the quarantine and by Great Expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from starpo.gates.expected import Expected
from starpo.gates.facts import Facts

Measure = Callable[[Facts], NDArray[Any]]
"""[rows], a number or word per row; null in rows that the rule does not concern."""

#: Rows named in a message.
_ROWS_SHOWN = 3


@dataclass(frozen=True)
class Limit:
    """The values that a measure may have."""

    low: float | None = None
    """Smallest."""
    high: float | None = None
    """Largest."""
    among: tuple[Any, ...] | None = None
    """Instead of a range: all of them. Without any, the measure holds a word only where something is wrong."""

    def broken(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """[rows], where ``values`` are known and not allowed."""
        if self.among is not None:
            known = pa.array(values, from_pandas=True).is_valid().to_numpy(zero_copy_only=False)
            return known & ~np.logical_or.reduce([values == one for one in self.among])
        below = values < (-np.inf if self.low is None else self.low)
        return below | (values > (np.inf if self.high is None else self.high))

    def text(self, column: str) -> str:
        """`` (n_tokens >= 1)``; nothing where no value is allowed."""
        if self.among is not None:
            return f" ({column} = {' or '.join(map(str, self.among))})" if self.among else ""
        low = [] if self.low is None else [f"{column} >= {self.low}"]
        high = [] if self.high is None else [f"{column} <= {self.high}"]
        return f" ({', '.join(low + high)})"


NOTHING = Limit(among=())
"""For measures that hold a word only where something is wrong."""


def only(value: int | str | bool | None) -> Limit | None:
    """One value alone; no limit where it is unknown."""
    return None if value is None else Limit(among=(value,))


@dataclass(frozen=True)
class Rule:
    """What must hold of a table."""

    name: str
    """Of its measure, in messages and Great Expectations."""
    says: str
    """What must hold, as a sentence without a full stop."""
    measure: Measure
    """What is looked at."""
    limit: Limit | Callable[[Expected], Limit | None] | None
    """What the measure may be; None where a fact is unknown that this depends on."""
    fault: str = ""
    """Reason of the trajectories that a breach quarantines; without one, a breach rejects the table."""
    remedy: str = "This is a fault of the code that wrote the table: mend it."
    """What the user can do about a table that is rejected."""
    every_save: bool = True
    """Whether it is checked on every save, not only with the suites: it needs little time and no run's context."""
    shape: bool = False
    """Whether other rules can be asked only where it holds."""
    found: Callable[[Facts], str] | None = None
    """A breach in words, where it is not one of rows."""

    def limit_in(self, expected: Expected) -> Limit | None:
        """The limit in a table of which ``expected`` is known, None where it has none."""
        return self.limit(expected) if callable(self.limit) else self.limit

    def broken(self, facts: Facts) -> NDArray[np.bool_]:
        """[rows], where it does not hold."""
        limit = self.limit_in(facts.expected)
        return np.zeros(facts.rows, dtype=bool) if limit is None else limit.broken(self.measure(facts))


@dataclass(frozen=True)
class Breach:
    """A rule that does not hold."""

    rule: Rule
    says: str
    """What must hold, with the limit."""
    found: str
    """What was found instead: rows by key and value."""

    def __str__(self) -> str:
        return f"expected that {self.says}; found {self.found}"


def breach_of(rule: Rule, facts: Facts) -> Breach | None:
    """The breach of one rule, naming rows, or None."""
    broken, limit = np.flatnonzero(rule.broken(facts)), rule.limit_in(facts.expected)
    if limit is None or not broken.size:
        return None
    if rule.found is not None:
        found = rule.found(facts)
    else:
        values = rule.measure(facts)
        shown = "; ".join(f"{facts.name(row)} ({rule.name} = {values[row]})" for row in broken[:_ROWS_SHOWN])
        found = f"{broken.size} of {facts.rows} rows, first: {shown}"
    return Breach(rule, rule.says + limit.text(rule.name), found)


def asked(rules: Iterable[Rule], facts: Facts) -> list[Rule]:
    """The rules that can be asked of the table; of a table of the wrong shape only the broken rule."""
    able = [rule for rule in rules if rule.limit_in(facts.expected) is not None]
    wrong = next((rule for rule in able if rule.shape and rule.broken(facts).any()), None)
    return able if wrong is None else [wrong]


def check(rules: Iterable[Rule], facts: Facts) -> Breach | None:
    """The first breach that rejects the table among the rules of every save, or None."""
    looked_at = (rule for rule in asked(rules, facts) if rule.every_save and not rule.fault)
    breaches = (breach_of(rule, facts) for rule in looked_at)
    return next((breach for breach in breaches if breach), None)

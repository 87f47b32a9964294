"""The rules of a table as a Great Expectations suite: it judges their measures, in memory and silently."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

from starpo.gates.facts import NAMING, Facts
from starpo.gates.rule import Breach, Limit, Rule, asked, breach_of

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.expectations import Expectation


@dataclass(frozen=True)
class Outcome:
    """What a suite said about one table."""

    breaches: list[Breach]
    """Rules that do not hold; those that reject the table first."""
    result: dict[str, Any]
    """GX's whole result, JSON-able, for the Data Docs."""


def run_suite(name: str, rules: Iterable[Rule], facts: Facts) -> Outcome:
    """Have Great Expectations judge every rule that can be asked.

    Args:
        name: of the suite.
        rules: what must hold.
        facts: the table.

    Raises:
        RuntimeError: Great Expectations finds a rule broken, or cannot judge it, that holds by its own measure.
    """
    from great_expectations import ExpectationSuite  # noqa: PLC0415

    able = asked(rules, facts)
    keys = [key for key in NAMING if key in facts.table.column_names]
    frame = pd.DataFrame(
        {key: facts.column(key) for key in keys} | {rule.name: rule.measure(facts) for rule in able}
    )
    suite = ExpectationSuite(name=name, expectations=[_expectation(rule, facts) for rule in able])
    batch = _memory().get_batch({"dataframe": frame})
    validated = batch.validate(suite, result_format="BASIC")
    if not validated.success:
        # Naming rows costs two thirds more, so only a breach pays for it.
        named = {"result_format": "SUMMARY", "unexpected_index_column_names": keys}
        validated = batch.validate(suite, result_format=named)
    result = validated.to_json_dict()
    failed = {
        one["expectation_config"]["kwargs"]["column"] for one in result["results"] if not one["success"]
    }
    breaches = [breach for rule in able if rule.name in failed and (breach := breach_of(rule, facts))]
    if unexplained := failed.difference(breach.rule.name for breach in breaches):
        # A table must not pass because its breach cannot be told.
        raise RuntimeError(f"{name}: Great Expectations finds {sorted(unexplained)} broken, the rules do not")
    return Outcome(sorted(breaches, key=lambda breach: bool(breach.rule.fault)), result)


def _expectation(rule: Rule, facts: Facts) -> Expectation:
    """The expectation of a rule's measure. GX calls what a breach concerns its severity, and shows it."""
    from great_expectations import expectations as gxe  # noqa: PLC0415
    from great_expectations.expectations.metadata_types import FailureSeverity  # noqa: PLC0415

    limit = rule.limit_in(facts.expected) or Limit()
    about: dict[str, Any] = {
        "column": rule.name,
        "severity": FailureSeverity.WARNING if rule.fault else FailureSeverity.CRITICAL,
        "notes": rule.says,
    }
    if limit.among is None:
        return gxe.ExpectColumnValuesToBeBetween(min_value=limit.low, max_value=limit.high, **about)
    if limit.among:
        return gxe.ExpectColumnValuesToBeInSet(value_set=list(limit.among), **about)
    return gxe.ExpectColumnValuesToBeNull(**about)


@cache
def _memory() -> BatchDefinition[Any]:
    """One ephemeral context per process: nothing on disk, nothing sent anywhere, no progress bars."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx  # noqa: PLC0415
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("memory")
    return source.add_dataframe_asset("table").add_batch_definition_whole_dataframe("whole")

"""Running a suite on a frame, in memory and silently, and reading what it found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.expectations import Expectation

#: Rows named in an error message.
_ROWS_SHOWN = 3


@dataclass(frozen=True)
class Breach:
    """An expectation that does not hold."""

    says: str
    """What must hold, in words."""
    expectation: str
    """Its name in Great Expectations."""
    stops: bool
    """Whether it rejects the table; else its trajectories are quarantined."""
    found: str
    """What was found instead: rows by key and value, or the value of the whole column."""
    remedy: str
    """What the user can do."""

    def __str__(self) -> str:
        return f"expected that {self.says} ({self.expectation}); found {self.found}"


@dataclass(frozen=True)
class Outcome:
    """What a suite said about one table."""

    breaches: list[Breach]
    """Expectations that do not hold; those that reject the table first."""
    result: dict[str, Any]
    """GX's whole result, JSON-able, for the Data Docs."""

    @property
    def stops(self) -> bool:
        """Whether the table must not be used."""
        return any(breach.stops for breach in self.breaches)


def run_suite(
    name: str, frame: pd.DataFrame, expectations: Sequence[Expectation], *, keys: Sequence[str]
) -> Outcome:
    """Validate ``frame``.

    Args:
        name: of the suite.
        frame: what the expectations look at.
        expectations: the suite.
        keys: columns that name a row in messages.
    """
    from great_expectations import ExpectationSuite  # noqa: PLC0415

    present = [key for key in keys if key in frame.columns]
    suite, batch = (
        ExpectationSuite(name=name, expectations=list(expectations)),
        _memory().get_batch({"dataframe": frame}),
    )
    validated = batch.validate(suite, result_format="BASIC")
    if not validated.success:
        # Naming rows costs two thirds more, so only a breach pays for it.
        named = {
            "result_format": "SUMMARY",
            "unexpected_index_column_names": present,
            "partial_unexpected_count": _ROWS_SHOWN,
        }
        validated = batch.validate(suite, result_format=named)
    result = validated.to_json_dict()
    breaches = [_breach(one, present) for one in result["results"] if not one["success"]]
    return Outcome(sorted(breaches, key=lambda breach: not breach.stops), result)


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


def _breach(result: dict[str, Any], keys: Sequence[str]) -> Breach:
    config, found = result["expectation_config"], result["result"]
    return Breach(
        says=str(config.get("notes")),
        expectation=config["type"],
        stops=config.get("severity") == "critical",
        found=_found(result, found, config["kwargs"], keys),
        remedy=str(config.get("meta", {}).get("remedy", "")),
    )


def _found(
    result: dict[str, Any], found: dict[str, Any], arguments: dict[str, Any], keys: Sequence[str]
) -> str:
    if not found:
        # An expectation that could not be evaluated, such as of a column that is missing.
        messages = [
            problem["exception_message"]
            for problem in result["exception_info"].values()
            if isinstance(problem, dict)
        ]
        return "; ".join(dict.fromkeys(messages)) or "nothing to look at"
    if "unexpected_count" not in found:
        missing = found.get("details", {}).get("mismatched", {}).get("missing")
        return (
            f"{missing} missing" if missing else f"{found.get('observed_value')} in {arguments.get('column')}"
        )
    rows = found.get("partial_unexpected_index_list") or []
    shown = "; ".join(_row(row, keys) for row in rows[:_ROWS_SHOWN])
    return f"{found['unexpected_count']} of {found['element_count']} rows, first: {shown}"


def _row(row: dict[str, Any], keys: Sequence[str]) -> str:
    named = " ".join(f"{key} {row[key]}" for key in keys if key in row)
    values = ", ".join(f"{name} = {value}" for name, value in row.items() if name not in keys)
    return f"{named} ({values})" if values else named

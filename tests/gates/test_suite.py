"""Great Expectations judges the rules: nothing of sound tables, and every rule of a table that is spoilt by each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from builders import turn_row, turns_table
from tables import EXPECTED, Rows, metrics, observation, scored_table, turn_rows, update_rows

from starpo.environments.splits import Split
from starpo.gates.facts import Facts
from starpo.gates.metrics import metrics_table
from starpo.gates.rule import Limit, Rule, asked
from starpo.gates.rules import SUITES
from starpo.gates.suite import run_suite
from starpo.store.schemas import SCORED, UPDATES, WINDOWED_TURNS

KNOWN = replace(EXPECTED, max_quarantined_share=0.1)


def changed(rows: Rows, *changes: dict[str, object]) -> Rows:
    """The ``n``-th of ``changes`` is made in row ``n``."""
    return [row | (changes[number] if number < len(changes) else {}) for number, row in enumerate(rows)]


def spoilt_turns(split: Split) -> pa.Table:
    """A table of the other split, spoilt by what each rule forbids."""
    rows = [row | {"chain_start": False} for row in turn_rows(split)]
    spoilt = changed(
        rows,
        {"response_ids": [], "response_logprobs": [], "observation": observation(Split.TEST, 9)},
        {"context_ids": [], "iteration": 1, "turn": 3},
        {"response_logprobs": [-0.5], "policy_step": 7, "chain_start": True},
        {"response_logprobs": [-0.5, float("nan")], "observation": None},
        {"response_logprobs": [-0.5, 0.25], "member": 9},
        {"response_logprobs": [-0.5, -200.0], "trajectory_stop": "environment_error"},
        {"reward": float("inf")},
        {"reward": 5.0},
    )
    return pa.Table.from_pylist([*spoilt, *spoilt[-2:]], schema=WINDOWED_TURNS)


def spoilt_scores() -> pa.Table:
    rows = changed(
        scored_table(turn_rows()).to_pylist(),
        {"return": float("nan"), "iteration": 3},
        {"quarantined": True, "policy_step": 7, "reason": "no_context"},
        {"turns": 3, "kept": False},
        {"return": 0.5},
        {"turn_rewards": [2000.0, 0.0], "return": 2000.0},
        {"group_std": -1.0},
    )
    return pa.Table.from_pylist([*rows, rows[-1]], schema=SCORED)


def spoilt_updates() -> pa.Table:
    rows = changed(
        update_rows(),
        {"values": [0.0], "iteration": 3},
        {"advantages": [], "values": [], "learner_logprobs": [], "ratios": [], "policy_step": 7},
        {"advantages": [float("nan"), 0.0]},
        {"learner_logprobs": [0.5, -1.0]},
        {"ratios": [-0.5, 1.0]},
    )
    return pa.Table.from_pylist([*rows, rows[-1]], schema=UPDATES)


TABLES = {
    "rollouts": (turns_table(*turn_rows()), spoilt_turns(Split.VALIDATION)),
    "evaluation": (turns_table(*turn_rows(Split.TEST)), spoilt_turns(Split.TRAIN)),
    "scored": (scored_table(turn_rows()), spoilt_scores()),
    "updates": (pa.Table.from_pylist(update_rows(), schema=UPDATES), spoilt_updates()),
    "metrics": (
        metrics_table(metrics(), KNOWN),
        metrics_table(metrics() | {"entropy": float("nan"), "success": 1.5}, KNOWN),
    ),
}


@pytest.mark.parametrize("suite", SUITES)
def test_great_expectations_finds_each_rule_broken_that_is(suite: str) -> None:
    sound, spoilt = (Facts(table, KNOWN) for table in TABLES[suite])
    passed = run_suite(suite, SUITES[suite], sound)
    assert passed.breaches == []
    assert passed.result["success"] is True
    assert passed.result["statistics"]["evaluated_expectations"] == len(asked(SUITES[suite], sound))

    failed = run_suite(suite, SUITES[suite], spoilt)
    names = {breach.rule.name for breach in failed.breaches}
    expected = {rule.name for rule in SUITES[suite] if not rule.shape}
    assert names == expected
    assert names == {rule.name for rule in SUITES[suite] if rule.broken(spoilt).any()}, "numpy says the same"
    stops = [not breach.rule.fault for breach in failed.breaches]
    assert stops == sorted(stops, reverse=True), "those that stop the run come first"
    severities = {one["expectation_config"]["severity"] for one in failed.result["results"]}
    assert severities == ({"critical", "warning"} if suite == "rollouts" else {"critical"})


@pytest.mark.parametrize("change", [{"group": None}, {}], ids=["a null key", "a column less"])
def test_great_expectations_judges_the_shape_alone_where_it_is_wrong(change: dict[str, object]) -> None:
    table = turns_table(turn_row(), turn_row(turn=1) | change)
    facts = Facts(table if change else table.drop_columns(["group"]), KNOWN)
    outcome = run_suite("rollouts", SUITES["rollouts"], facts)
    (breach,) = outcome.breaches
    assert breach.rule.shape
    assert outcome.result["statistics"]["evaluated_expectations"] == 1


def test_a_verdict_that_the_rule_does_not_share_is_an_error_and_no_pass() -> None:
    measured = iter([np.array([-1.0]), np.array([1.0])])
    unsteady = Rule("unsteady", "it is steady", lambda facts: next(measured), Limit(low=0))
    with pytest.raises(RuntimeError, match="unsteady"):
        run_suite("odd", (unsteady,), Facts(turns_table(turn_row())))

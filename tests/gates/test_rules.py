"""Each rule of each table is broken by exactly one corruption, and no sound table breaks any."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders import turns_table
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tables import (
    EXPECTED,
    SIZE,
    Change,
    drop,
    metrics,
    observation,
    put,
    put_all,
    scored_table,
    turn_rows,
    update_rows,
)

from starpo.environments.splits import Split
from starpo.gates.expected import Expected
from starpo.gates.facts import Facts
from starpo.gates.metrics import metrics_table
from starpo.gates.quarantine import turn_faults
from starpo.gates.rule import Breach, asked, breach_of
from starpo.gates.rules import SUITES, check_table
from starpo.store.schemas import SCORED, UPDATES


def judge(suite: str, table: pa.Table) -> list[Breach]:
    facts = Facts(table, EXPECTED)
    return [breach for rule in asked(SUITES[suite], facts) if (breach := breach_of(rule, facts))]


def judge_metrics(values: dict[str, Any]) -> list[Breach]:
    return judge("metrics", metrics_table(values, EXPECTED))


def broken(breaches: list[Breach]) -> list[tuple[str, bool]]:
    return [(breach.rule.says, not breach.rule.fault) for breach in breaches]


def cast(table: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, table[column].cast(kind))


TWICE = "no two rows have the same group, member and turn"

#: Corruption -> (change of the turns, what breaks, what the message says was found).
BAD_TURNS: dict[str, tuple[Change, str, str]] = {
    "a turn without a sampled token": (
        put(3, response_ids=[], response_logprobs=[]),
        "every turn has a sampled token",
        "group 0 member 1 turn 1 (n_tokens = 0)",
    ),
    "a turn without context": (put(3, context_ids=[]), "every turn has context", "n_context = 0"),
    "fewer log-probs than tokens": (
        put(3, response_logprobs=[-0.5]),
        "every sampled token has a log-prob",
        "lacking = 1",
    ),
    "a log-prob that is no number": (
        put(3, response_logprobs=[-0.5, float("nan")]),
        "log-probs are finite",
        "1 of 16 rows",
    ),
    "a log-prob above 0": (
        put(3, response_logprobs=[-0.5, 0.25]),
        "log-probs are at most gates.quarantine.max_logprob",
        "largest_logprob = 0.25",
    ),
    "an impossible token": (
        put(3, response_logprobs=[-0.5, -200.0]),
        "log-probs are at least gates.quarantine.min_logprob",
        "smallest_logprob = -200.0",
    ),
    "an infinite reward": (put(2, reward=float("inf")), "every turn has a finite reward", "reward = inf"),
    "no reward": (put(2, reward=None), "every turn has a finite reward", "group 0 member 1 turn 0"),
    "a return beyond the environment's": (
        put(3, reward=5.0),
        "returns lie in the environment's return_range",
        "return_excess = 4.0",
    ),
}

#: The same for what tells turns, groups and policies apart.
BAD_TABLES: dict[str, tuple[Change, str, str]] = {
    "a trajectory's turns twice": (
        lambda rows: [*rows, *rows[:2]],
        TWICE,
        "4 of 18 rows, first: group 0 member 0 turn 0 (occurrences = 2)",
    ),
    "a turn left out": (
        put(1, turn=2),
        "a trajectory's turns are 0, 1, 2, … in this order",
        "1 of 16 rows, first: group 0 member 0 turn 2 (turn_jump = 1)",
    ),
    "no observation": (put(1, observation=None), "every turn has an observation", "group 0 member 0 turn 1"),
    "another iteration": (put_all(iteration=3), "the iteration is that of the file", "iteration = 3"),
    "stale weights": (
        put_all(policy_step=7),
        "the weights' version is that of the iteration's policy",
        "16 of 16 rows, first: group 0 member 0 turn 0 (policy_step = 7)",
    ),
    "an instance of the test split": (
        put(0, observation=observation(Split.TEST)),
        "every first observation belongs to the table's split",
        "own_split = test",
    ),
}

BAD_GROUPS: dict[str, tuple[Change, str, str]] = {
    "a table of held-out instances": (
        lambda rows: turn_rows(Split.VALIDATION),
        "the split is train",
        "split = validation",
    ),
    "a member too many": (
        lambda rows: [
            row | {"member": 9} if (row["group"], row["member"]) == (0, 1) else row for row in rows
        ],
        "no member is numbered beyond rollout.group_size",
        "2 of 16 rows, first: group 0 member 9 turn 0",
    ),
    "groups that are missing": (
        drop(lambda row: row["group"] in {1, 2}),
        "few trajectories are quarantined or without a row",
        "4 of 8 trajectories (no_row 4), first: group 1 member 0",
    ),
}


def test_sound_rollouts_break_nothing() -> None:
    assert judge("rollouts", turns_table(*turn_rows())) == []


@pytest.mark.parametrize("what", BAD_TURNS)
def test_a_faulty_turn_of_training_is_one_breach_that_does_not_stop(what: str) -> None:
    change, says, found = BAD_TURNS[what]
    breaches = judge("rollouts", turns_table(*change(turn_rows())))
    assert broken(breaches) == [(says, False)]
    assert found in str(breaches[0])


@pytest.mark.parametrize("what", BAD_TURNS)
def test_a_faulty_turn_of_an_evaluation_stops(what: str) -> None:
    change, says, found = BAD_TURNS[what]
    breaches = judge("evaluation", turns_table(*change(turn_rows(Split.TEST))))
    assert broken(breaches) == [(says, True)]
    assert found in str(breaches[0])


@pytest.mark.parametrize("what", BAD_TABLES | BAD_GROUPS)
def test_a_faulty_table_of_rollouts_is_one_breach_that_stops(what: str) -> None:
    change, says, found = (BAD_TABLES | BAD_GROUPS)[what]
    breaches = judge("rollouts", turns_table(*change(turn_rows())))
    assert broken(breaches) == [(says, True)]
    assert found in str(breaches[0])


def test_a_group_that_lacks_a_member_is_shown_and_goes_on() -> None:
    rows = drop(lambda row: (row["group"], row["member"]) == (1, 1))(turn_rows())
    assert broken(judge("rollouts", turns_table(*rows))) == [
        ("every group has rollout.group_size members", False)
    ]


def test_re_sampled_groups_beyond_the_usual_number_are_welcome() -> None:
    more = [row | {"group": row["group"] + 4} for row in turn_rows()]
    assert broken(judge("rollouts", turns_table(*turn_rows(), *more))) == []


def test_an_evaluation_of_training_instances_stops() -> None:
    assert broken(judge("evaluation", turns_table(*turn_rows()))) == [("the split is held out", True)]
    assert broken(judge("evaluation", turns_table(*turn_rows(Split.TEST)))) == []


@pytest.mark.parametrize(
    ("suite", "table", "found"),
    [
        (
            "rollouts",
            turns_table(*turn_rows()).drop_columns(["thought"]),
            "that the column 'thought' is missing",
        ),
        (
            "evaluation",
            cast(turns_table(*turn_rows(Split.TEST)), "reward", pa.float64()),
            "that the column 'reward' holds double, expected float",
        ),
        ("scored", scored_table(turn_rows()).drop_columns(["group"]), "that the column 'group' is missing"),
        (
            "updates",
            pa.Table.from_pylist(update_rows(), UPDATES).drop_columns(["stream"]),
            "'stream' is missing",
        ),
    ],
    ids=["rollouts", "evaluation", "scored", "updates"],
)
def test_of_a_table_of_another_shape_nothing_else_is_asked(suite: str, table: pa.Table, found: str) -> None:
    (breach,) = judge(suite, table)
    assert breach.rule.says.startswith("the columns are those of a table of")
    assert found in breach.found
    assert not breach.rule.fault


def test_rows_without_a_key_are_named_and_nothing_else_is_asked() -> None:
    (breach,) = judge(
        "scored", pa.Table.from_pylist(put(2, group=None)(scored_table(turn_rows()).to_pylist()), SCORED)
    )
    assert breach.rule.name == "null_key"
    assert "1 of 8 rows, first: group None member 0 (null_key = group)" in breach.found


def test_a_declared_split_is_that_of_the_instance() -> None:
    from starpo.environments.registry import make
    from starpo.environments.splits import draw_instance
    from starpo.seeds import Purpose, SeedKey

    key = SeedKey(0, Purpose.INSTANCE, "train", 0, 0)
    instance = draw_instance(make("bandit"), split=Split.TRAIN, key=key)
    first = {"environment": "bandit", "instance_seed": instance.seed, "observation": instance.observation}
    rows = put_all(environment="bandit")(turn_rows())
    sound = [row | first if row["turn"] == 0 else row for row in rows]
    assert broken(judge("rollouts", turns_table(*sound))) == []
    forged = judge("rollouts", turns_table(*put(0, observation="Arms: A, B")(sound)))
    assert "own_split = not the observation of its instance_seed" in str(forged[0])


BAD_SCORES: dict[str, tuple[Change, str]] = {
    "a trajectory twice": (put(1, member=0), "no two rows have the same group and member"),
    "no return": (put(0, **{"return": None}), "every return is a finite number"),
    "another iteration": (put_all(iteration=3), "the iteration is that of the file"),
    "stale weights": (
        put_all(policy_step=7),
        "the weights' version is that of the iteration's policy",
    ),
    "half of them quarantined": (
        lambda rows: [row | {"quarantined": row["member"] == 0, "kept": False} for row in rows],
        "few trajectories are quarantined or without a row",
    ),
    "kept although quarantined": (put(0, quarantined=True), "no quarantined trajectory is kept"),
    "half a group kept": (put(0, kept=False), "a group is kept or dropped as a whole"),
    "a turn without a reward": (put(0, turns=3), "every turn has a reward"),
    "a return that is no sum": (put(0, **{"return": 0.5}), "the return is the sum of the turn rewards"),
    "a huge reward": (
        put(0, turn_rewards=[2000.0, 0.0], **{"return": 2000.0}),
        "no turn's reward after all terms exceeds gates.quarantine.max_absolute_reward",
    ),
    "a negative spread": (put(0, group_std=-1.0), "the spread of a group is not negative"),
}


@pytest.mark.parametrize("what", BAD_SCORES)
def test_a_faulty_table_of_scores_is_one_breach_that_stops(what: str) -> None:
    change, says = BAD_SCORES[what]
    table = scored_table(turn_rows())
    assert broken(judge("scored", table)) == []
    assert broken(judge("scored", pa.Table.from_pylist(change(table.to_pylist()), schema=SCORED))) == [
        (says, True)
    ]


FINITE = "the entries of all lists are finite"

BAD_UPDATES: dict[str, tuple[Change, str]] = {
    "a turn twice": (put(1, turn=0), TWICE),
    "another iteration": (put_all(iteration=3), "the iteration is that of the file"),
    "stale weights": (
        put_all(policy_step=7),
        "the weights' version is that of the iteration's policy",
    ),
    "a value too few": (put(0, values=[0.0]), "all lists have an entry per token"),
    "ratios without log-probs": (put(0, learner_logprobs=None), "all lists have an entry per token"),
    "no values": (put(0, values=None), "all lists have an entry per token"),
    "a turn without tokens": (
        put(0, advantages=[], values=[], learner_logprobs=[], ratios=[]),
        "every turn has a token",
    ),
    "an advantage that is no number": (put(0, advantages=[float("nan"), 0.0]), FINITE),
    "an infinite value": (put(0, values=[float("inf"), 0.0]), FINITE),
    "a log-prob that is no number": (
        put(0, learner_logprobs=[float("nan"), -1.0]),
        FINITE,
    ),
    "an infinite ratio": (put(0, ratios=[float("inf"), 1.0]), FINITE),
    "a probability above one": (
        put(0, learner_logprobs=[0.5, -1.0]),
        "the learner's log-probs are at most gates.quarantine.max_logprob",
    ),
    "a negative ratio": (put(0, ratios=[-0.5, 1.0]), "ratios are not negative"),
}


@pytest.mark.parametrize("what", BAD_UPDATES)
def test_a_faulty_table_of_updates_is_one_breach_that_stops(what: str) -> None:
    change, says = BAD_UPDATES[what]
    assert broken(judge("updates", pa.Table.from_pylist(change(update_rows()), schema=UPDATES))) == [
        (says, True)
    ]


def test_sound_updates_and_metrics_break_nothing() -> None:
    assert broken(judge("updates", pa.Table.from_pylist(update_rows(), schema=UPDATES))) == []
    unreached = put(0, learner_logprobs=None, ratios=None)(update_rows())
    assert broken(judge("updates", pa.Table.from_pylist(unreached, schema=UPDATES))) == []
    assert broken(judge_metrics(metrics())) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("success", 1.5),
        ("entropy", -0.1),
        ("entropy", 21.0),
        ("approx_kl", 11.0),
        ("approx_kl", -0.1),
        ("clip_high_share", 1.1),
        ("gradient_norm", 2e6),
        ("policy_loss", -2e6),
        ("explained_variance", 1.5),
        ("iteration", 1),
        ("policy_step", 1),
    ],
)
def test_a_metric_out_of_bounds_is_named(name: str, value: float) -> None:
    breaches = judge_metrics(metrics() | {name: value})
    assert broken(breaches) == [("every metric is within its bounds", True)]
    assert f"metric {name} (" in breaches[0].found


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_metric_that_is_not_finite_is_named(value: float) -> None:
    values = metrics() | {"entropy": value}
    assert broken(judge_metrics(values)) == [("all metrics are finite", True)]
    assert f"first: metric entropy (value = {value})" in judge_metrics(values)[0].found


def test_every_rule_of_every_save_is_asked_of_a_table_of_which_nothing_is_known() -> None:
    rules = {suite: {rule.name for rule in SUITES[suite] if rule.every_save} for suite in SUITES}
    assert rules["updates"] == {
        *("schema_problem", "null_key", "difference", "occurrences"),
        *("uneven", "n_advantages", "infinite", "smallest_ratio"),
    }
    for suite, table in {"rollouts": turns_table(*turn_rows()), "scored": scored_table(turn_rows())}.items():
        unknown = {rule.name for rule in SUITES[suite]} - {
            rule.name for rule in asked(SUITES[suite], Facts(table))
        }
        needs_the_run = {"iteration", "policy_step", "faulty_share"}
        assert unknown == needs_the_run | ({"member", "members"} if suite == "rollouts" else set())


@st.composite
def sound_rollouts(draw: st.DrawFn) -> pa.Table:
    """Any number of groups, trajectories of any length, any sampled tokens, returns within the range."""
    rows = []
    logprob = st.floats(min_value=-99, max_value=0, width=32)
    text = st.text(max_size=5)
    for group in range(draw(st.integers(4, 6))):
        for member in range(SIZE):
            turns = draw(st.integers(1, 3))
            for turn in range(turns):
                logprobs = draw(st.lists(logprob, min_size=1, max_size=4))
                rows.append(
                    turn_rows()[0]
                    | {
                        "group": group,
                        "member": member,
                        "turn": turn,
                        "observation": observation(Split.TRAIN, group) if turn == 0 else draw(text),
                        "response_ids": list(range(len(logprobs))),
                        "response_logprobs": logprobs,
                        "reward": draw(st.sampled_from([0.0, 0.25, 0.3])),
                    }
                )
    return turns_table(*rows)


@examples(0.2)
@given(table=sound_rollouts())
def test_every_sound_table_passes_and_scores_into_a_sound_table(table: pa.Table) -> None:
    assert check_table(table, "turns") is None
    assert turn_faults(table, Expected(ranges=EXPECTED.ranges)) == {}
    assert broken(judge("rollouts", table)) == []
    scores = scored_table(table.to_pylist())
    assert check_table(scores, "scored") is None
    assert not any(scores["quarantined"].to_pylist())
    assert broken(judge("scored", scores)) == []

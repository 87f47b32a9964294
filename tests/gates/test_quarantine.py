"""A faulty trajectory is quarantined: its reason is kept, and nothing that is learned depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from builders import turns_table
from tables import EXPECTED, GROUPS, SIZE, Change, Rows, put, scored_table, turn_rows

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.registry import advantage_estimator
from starpo.config.environment import EnvironmentConfig
from starpo.config.gates import QuarantineConfig
from starpo.config.reward import FilterConfig
from starpo.gates.expected import Expected, return_ranges
from starpo.gates.facts import Facts
from starpo.gates.quarantine import FAULTS, describe, quarantined, turn_faults
from starpo.gates.rule import check
from starpo.gates.rules import SUITES
from starpo.learning.batching import sequences_of
from starpo.rewards.bind import bind_terms
from starpo.scoring.scoring import mark_kept, score_turns

#: Row 3 is the last turn of group 0 member 1.
FAULTY: dict[str, Change] = {
    "no_sampled_token": put(3, response_ids=[], response_logprobs=[]),
    "no_context": put(3, context_ids=[]),
    "lengths_disagree": put(3, response_logprobs=[-0.5]),
    "logprob_not_finite": put(3, response_logprobs=[-0.5, float("nan")]),
    "logprob_above_zero": put(3, response_logprobs=[-0.5, 0.1]),
    "logprob_below_floor": put(3, response_logprobs=[-0.5, -101.0]),
    "reward_not_finite": put(3, reward=float("inf")),
    "return_out_of_range": put(3, reward=1.5),
}


def faults(rows: Rows) -> dict[tuple[int, int], str]:
    return turn_faults(turns_table(*rows), Expected(ranges=EXPECTED.ranges))


@pytest.mark.parametrize("reason", FAULTY)
def test_each_fault_of_a_row_quarantines_its_trajectory_with_the_reason(reason: str) -> None:
    rows = FAULTY[reason](turn_rows())
    assert faults(rows) == {(0, 1): reason}
    scored = scored_table(rows)
    assert quarantined(scored) == {(0, 1): reason}
    (row,) = [row for row in scored.to_pylist() if row["quarantined"]]
    assert (row["kept"], row["group_mean"], row["group_std"]) == (False, 0.0, 0.0)
    assert reason in FAULTS


def test_a_return_below_the_range_is_a_fault_as_one_above_it() -> None:
    assert faults(put(3, reward=-1.5)(turn_rows())) == {(0, 1): "return_out_of_range"}


def test_null_where_a_number_or_list_belongs_is_a_fault() -> None:
    assert faults(put(3, reward=None)(turn_rows())) == {(0, 1): "reward_not_finite"}
    assert faults(put(3, response_ids=None)(turn_rows())) == {(0, 1): "no_sampled_token"}
    assert faults(put(3, response_logprobs=None)(turn_rows())) == {(0, 1): "lengths_disagree"}


def test_sound_rows_rounding_and_unknown_environments_are_no_fault() -> None:
    assert faults(turn_rows()) == {}
    assert faults(put(3, response_logprobs=[5e-5, -99.0], reward=1.0005)(turn_rows())) == {}
    assert turn_faults(turns_table(*put(3, reward=1e6)(turn_rows())), Expected()) == {}


def test_limits_are_parameters() -> None:
    rows = put(3, response_logprobs=[0.5, -0.5])(turn_rows())
    assert turn_faults(turns_table(*rows), Expected(QuarantineConfig(max_logprob=0.6))) == {}
    strict = Expected(QuarantineConfig(min_logprob=-1.0))
    assert len(turn_faults(turns_table(*turn_rows()), strict)) == GROUPS * SIZE


def test_ranges_are_those_the_environments_declare() -> None:
    assert return_ranges(EnvironmentConfig(name="bandit")) == {"bandit": (0.0, 1.0)}


def test_a_reward_that_the_terms_blew_up_is_quarantined_after_scoring() -> None:
    terms = bind_terms({"environment": {"scale": 5000.0}})
    scored = score_turns(turns_table(*turn_rows()), terms, ranges=EXPECTED.ranges)
    assert quarantined(scored) == {(group, 1): "reward_too_large" for group in range(GROUPS)}


def test_an_environment_error_is_the_reason_even_where_the_rows_are_faulty_too() -> None:
    rows = put(3, reward=9.0, trajectory_stop="environment_error")(turn_rows())
    assert quarantined(scored_table(rows)) == {(0, 1): "environment_error"}


def three_members(faulty: Change | None) -> Rows:
    """Groups of three, where member 2 of group 0 is faulty or absent."""
    extra = [row | {"member": 2, "reward": 0.5 * row["turn"]} for row in turn_rows() if row["member"] == 0]
    rows = sorted([*turn_rows(), *extra], key=lambda row: (row["group"], row["member"], row["turn"]))
    if faulty is None:
        return [row for row in rows if (row["group"], row["member"]) != (0, 2)]
    return faulty([row if (row["group"], row["member"]) != (0, 2) else row | {"mark": 1} for row in rows])


def learned(rows: Rows) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What is learned of each kept trajectory: group statistics and the advantage of every token."""
    turns = turns_table(*rows)
    scored = score_turns(turns, bind_terms({"environment": {}}), ranges=EXPECTED.ranges)
    kept = [row for row in mark_kept(scored, FilterConfig(keep_ratio=1.0)).to_pylist() if row["kept"]]
    keys = {(row["group"], row["member"]) for row in kept}
    batch = sequences_of(turns, {(r["group"], r["member"]): r["turn_rewards"] for r in kept}, keys)
    estimate = advantage_estimator("grpo")(
        AdvantageBatch(batch.mask, batch.turn_index, batch.turn_rewards, batch.turn_mask, batch.group_ids)
    )
    statistics = {(row["group"], row["member"]): (row["group_mean"], row["group_std"]) for row in kept}
    return {
        key: (*statistics[key], estimate.advantages[number][batch.mask[number]].tolist())
        for number, key in enumerate(batch.keys)
    }


@pytest.mark.parametrize("reason", ["lengths_disagree", "logprob_not_finite", "return_out_of_range"])
def test_a_quarantined_trajectory_has_zero_weight_as_if_it_were_not_there(reason: str) -> None:
    changes = {
        "lengths_disagree": {"response_logprobs": [-0.5]},
        "logprob_not_finite": {"response_logprobs": [float("nan"), -0.5]},
        "return_out_of_range": {"reward": 1000.0},
    }[reason]

    def spoil(rows: Rows) -> Rows:
        return [
            {
                name: value
                for name, value in (row | changes if "mark" in row else row).items()
                if name != "mark"
            }
            for row in rows
        ]

    with_fault, without = learned(three_members(spoil)), learned(three_members(None))
    assert (0, 2) not in with_fault
    assert with_fault == without
    assert torch.tensor([one for *_, advantages in without.values() for one in advantages]).abs().max() > 0
    sound = learned(three_members(lambda rows: [{k: v for k, v in r.items() if k != "mark"} for r in rows]))
    assert sound[0, 1] != without[0, 1], "a sound member would have counted"


def test_faults_are_described_with_reasons_and_rows() -> None:
    bad = {(0, 1): "lengths_disagree", (3, 0): "lengths_disagree", (2, 1): "return_out_of_range"}
    assert describe(bad, 8) == (
        "3 of 8 trajectories (lengths_disagree 2, return_out_of_range 1), "
        "first: group 0 member 1, group 2 member 1, group 3 member 0"
    )


def test_too_many_faults_are_one_problem_that_says_what_each_reason_means() -> None:
    rows = put(3, reward=9.0)(put(15, response_logprobs=[-0.5])(turn_rows()))

    def problem(most: float) -> str | None:
        breach = check(
            SUITES["rollouts"], Facts(turns_table(*rows), replace(EXPECTED, max_quarantined_share=most))
        )
        return None if breach is None else str(breach)

    assert problem(2 / 8) is None, "exactly the share is allowed"
    text = problem(0.2)
    assert text is not None
    assert "faulty_share <= 0.2" in text
    assert "2 of 8 trajectories (lengths_disagree 1, return_out_of_range 1), first: group 0 member 1" in text
    assert f"return_out_of_range: expected that {FAULTS['return_out_of_range']}" in text
    scored = check(SUITES["scored"], Facts(scored_table(rows), replace(EXPECTED, max_quarantined_share=0.2)))
    assert scored is not None
    assert "2 of 8 trajectories (return_out_of_range 1, lengths_disagree 1)" in scored.found

"""A suite's summary, counted by hand."""

from __future__ import annotations

import json
import math
import random

import pyarrow as pa
import pytest

from starpo.errors import UserError
from starpo.evaluation.glossary import METRICS
from starpo.evaluation.metrics import summarise
from starpo.store.schemas import TURNS


@pytest.fixture
def episodes(build) -> pa.Table:
    """Two prompts, two samples each: one of two turns that wins, one idle, one cut off, one bad format."""
    turn = build.turn
    rows = [
        turn(reward=-0.1, executed=["Right", "Up"], effective=1),
        turn(turn=1, reward=1.0, executed=["Right"], success=True, terminated=True),
        turn(member=1, executed=[], actions=[], effective=0, format_valid=False, reward=-0.5),
        turn(group=1, response_ids=[7] * 6, response_logprobs=[-1.0] * 6, stop_reason="length", reward=-0.2),
        turn(group=1, member=1, executed=["Down", "Down"], effective=0, reward=-0.2),
    ]
    stops = ["terminated", "terminated", "turn_limit", "length", "action_limit"]
    return build.table([row | {"trajectory_stop": stop} for row, stop in zip(rows, stops, strict=True)])


def test_every_number_of_a_small_suite(episodes: pa.Table) -> None:
    summary = summarise(episodes)
    frequencies = [3 / 6, 1 / 6, 2 / 6]
    expected = {
        "prompts": 2,
        "trajectories": 4,
        "success": 0.25,
        "success_format_valid": 0.25,
        "success_256": 0.25,
        "pass_at_2": 0.5,
        "return": (0.9 - 0.5 - 0.2 - 0.2) / 4,
        "group_return_variance": (2 * 0.7**2 + 0) / 2,
        "group_return_std": math.sqrt(2 * 0.7**2) / 2,
        "group_zero_spread": 0.5,
        "turns": 5 / 4,
        "actions": 6 / 4,
        "actions_per_turn": 6 / 5,
        "distinct_actions": (2 / 3 + 1 + 1 / 2) / 3,
        "action_entropy": -sum(p * math.log(p) for p in frequencies),
        "effective": 3 / 6,
        "response_length": 14 / 5,
        "response_tokens": 14,
        "tokens": 14 + 15,
        "thought_words_mean": 0,
        "thought_empty_share": 1,
        "thought_distinct_share": 1 / 5,
        "thought_variety": 0,
        "thought_template_similarity": 1,
        "thought_repetition": 0,
        "thought_prompt_information": 0,
        "thought_prompt_recognised_share": 1 / 2,
        "thought_prompt_chance": 1 / 2,
        "format_valid": 4 / 5,
        "cut_off": 1 / 5,
        "token_nll": (4 * 2.0 + 6.0) / 14,
        "stop_terminated": 0.25,
        "stop_turn_limit": 0.25,
        "stop_length": 0.25,
        "stop_action_limit": 0.25,
        "stop_environment_error": 0.0,
    }
    numbers = {key: value for key, value in summary.items() if not key.endswith(("_low", "_high"))}
    assert numbers == pytest.approx(expected, abs=1e-6)


def test_a_win_with_a_malformed_turn_is_a_success_and_none_with_a_valid_format(build) -> None:
    win = {"success": True, "terminated": True, "reward": 1.0}
    rows = [
        build.turn(format_valid=False),
        build.turn(turn=1, **win),
        build.turn(group=1, **win),
        build.turn(group=2, format_valid=False, **win),
        build.turn(group=3),
    ]
    summary = summarise(build.table(rows))
    assert (summary["success"], summary["success_format_valid"]) == (0.75, 0.25)
    assert summary["success_format_valid_low"] < 0.25 < summary["success_format_valid_high"]


def test_every_key_is_in_the_glossary_and_every_value_is_plain_json(episodes: pa.Table) -> None:
    summary = summarise(episodes)
    for key, value in summary.items():
        name = key.removesuffix("_low").removesuffix("_high")
        assert name in METRICS or name.startswith("pass_at_"), key
        assert type(value) in (int, float)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert METRICS.keys() - {"pass_at_{k}", "score"} <= summary.keys()  # bandits and lakes give no score


def test_the_order_of_the_rows_does_not_matter(episodes: pa.Table) -> None:
    order = list(range(episodes.num_rows))
    random.Random(0).shuffle(order)
    chunks = pa.concat_tables([episodes.take(order[:2]), episodes.take(order[2:])])
    assert summarise(chunks) == summarise(episodes)


def test_success_of_the_first_256_prompts_looks_at_their_numbers(build) -> None:
    table = build.outcomes([[prompt >= 256] for prompt in range(1024)])
    summary = summarise(table)
    assert summary["success"] == pytest.approx(0.75)
    assert summary["success_256"] == 0
    assert summary["success_256_high"] == pytest.approx(0.01478, abs=1e-5)
    assert summary["success_low"] < 0.75 < summary["success_high"]


def test_success_once_reached_is_not_lost_in_a_later_turn(build) -> None:
    rows = [build.turn(success=True), build.turn(turn=1, success=False)]
    assert summarise(build.table(rows))["success"] == 1


def test_pass_at_k_is_given_for_powers_of_two_up_to_the_samples(build) -> None:
    summary = summarise(build.outcomes([[1, 0, 0, 0, 0, 0], [0] * 6]))
    assert {key for key in summary if key.startswith("pass") and key[-1].isdecimal()} == {
        "pass_at_2",
        "pass_at_4",
    }
    assert summary["pass_at_4"] == pytest.approx((4 / 6) / 2)
    assert not [key for key in summarise(build.outcomes([[1], [0]])) if key.startswith(("pass", "group"))]


def test_what_is_undefined_is_left_out_instead_of_nan(build) -> None:
    row = build.turn(executed=[], effective=0, response_ids=[], response_logprobs=[])
    summary = summarise(build.table([row]))
    assert summary["actions"] == 0 and summary["response_tokens"] == 0
    assert not summary.keys() & {"distinct_actions", "action_entropy", "effective", "token_nll", "return_low"}
    assert all(math.isfinite(value) for value in summary.values())
    json.dumps(summary, allow_nan=False)


def test_a_policy_that_repeats_one_action_has_no_diversity(build) -> None:
    summary = summarise(build.table([build.turn(executed=["Up"] * 4, effective=0)]))
    assert summary["action_entropy"] == 0
    assert summary["distinct_actions"] == 0.25


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(UserError, match="no trajectory was evaluated"):
        summarise(TURNS.empty_table())


@pytest.mark.parametrize(("column", "value"), [("stream", "other"), ("policy_step", 7), ("temperature", 1.0)])
def test_two_suites_or_policies_in_one_table_are_refused(build, column: str, value: object) -> None:
    table = build.table([build.turn(), build.turn(group=1, **{column: value})])
    with pytest.raises(UserError, match=f"mixes {column}"):
        summarise(table)


def test_a_turn_that_appears_twice_is_refused(build) -> None:
    table = build.table([build.turn(group=4), build.turn(group=4)])
    with pytest.raises(UserError, match="turn 0 of prompt 4, sample 0 appears twice"):
        summarise(table)


def test_a_log_probability_that_is_not_finite_is_refused(build) -> None:
    table = build.table([build.turn(response_logprobs=[-math.inf, -1.0])])
    with pytest.raises(UserError, match="1 of 2 response_logprobs"):
        summarise(table)


def test_a_suite_without_its_head_is_refused(build) -> None:
    with pytest.raises(UserError, match="from prompt 0"):
        summarise(build.table([build.turn(group=300)]))

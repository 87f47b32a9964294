"""Numbers about thoughts, on thoughts whose likeness and repetition is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.evaluation.glossary import THOUGHTS
from starpo.evaluation.thoughts import masked_words, mean_similarity, repetition, thought_metrics

WORDS = st.lists(st.sampled_from(["go", "left", "Phoenix", "3", "I", "think"]), max_size=8)
NAMES = ["Phoenix Star", "Dragon", "Slow Bear", "Moon 7"]


def test_the_numbers_of_an_empty_table_are_none(build) -> None:
    assert thought_metrics(build.table([build.turn()]).slice(0, 0)) == {}


def test_thoughts_that_fill_in_one_template_are_alike_but_for_names(build) -> None:
    rows = [
        build.turn(
            group=group,
            member=member,
            observation=f"Arms: {name}, Rat",
            thought=f"I see {name} , so I take it",
        )
        for group, name in enumerate(NAMES)
        for member in range(4)
    ]
    found = thought_metrics(build.table(rows))
    assert found.keys() == THOUGHTS.keys()
    assert found["thought_template_similarity"] == 1
    assert found["thought_variety"] > 0.3 and found["thought_distinct_share"] == 1 / 4
    assert found["thought_prompt_information"] == pytest.approx(math.log(4), abs=0.02)


def test_one_thought_for_all_is_no_variety_and_tells_no_prompt(build) -> None:
    rows = [
        build.turn(group=group, member=member, thought="go go go go")
        for group in range(4)
        for member in range(4)
    ]
    found = thought_metrics(build.table(rows))
    assert (found["thought_variety"], found["thought_template_similarity"]) == (0, 1)
    assert found["thought_repetition"] == pytest.approx(2 / 3)
    assert found["thought_prompt_information"] == pytest.approx(0, abs=1e-9)
    assert found["thought_prompt_recognised_share"] == found["thought_prompt_chance"] == 1 / 4


def test_only_the_first_thought_of_a_trajectory_is_asked_for_its_prompt(build) -> None:
    rows = [
        build.turn(group=group, member=member, turn=turn, thought=f"name{group}" if turn else "hm")
        for group in range(4)
        for member in range(2)
        for turn in range(2)
    ]
    assert thought_metrics(build.table(rows))["thought_prompt_recognised_share"] == 1 / 4


def test_one_trajectory_per_prompt_leaves_out_what_it_cannot_tell(build) -> None:
    found = thought_metrics(build.table([build.turn(group=group, thought="a b") for group in range(4)]))
    assert THOUGHTS.keys() - found.keys() == {
        "thought_prompt_information",
        "thought_prompt_recognised_share",
        "thought_prompt_chance",
    }


def test_a_turn_without_a_thought_is_an_empty_one(build) -> None:
    found = thought_metrics(build.table([build.turn(thought=None), build.turn(member=1, thought="one two")]))
    assert (found["thought_words_mean"], found["thought_empty_share"]) == (1, 1 / 2)


@given(WORDS)
def test_a_name_of_the_prompt_leaves_the_template_as_it_is(words: list[str]) -> None:
    text = " ".join(words)
    renamed = text.replace("Phoenix", "Slow Bear")
    assert masked_words(text, "arms: Phoenix") == masked_words(renamed, "Slow or Bear")
    assert "3" not in masked_words(text, "")


@given(st.lists(WORDS, min_size=2, max_size=9))
def test_likeness_is_between_none_and_all(texts: list[list[str]]) -> None:
    assert 0 <= mean_similarity(texts) <= 1
    assert mean_similarity([texts[0], texts[0]]) == 1
    assert mean_similarity([["a", "b", "c"], ["c", "b", "a"]]) == 0


@given(WORDS, st.integers(2, 5))
def test_a_thought_that_goes_round_in_circles_repeats_itself(words: list[str], times: int) -> None:
    assert 0 <= repetition(words) <= 1
    round_and_round = [*words, "end"] * times
    assert repetition(round_and_round) >= 1 - (len(words) + 1) / (times * (len(words) + 1) - 1) - 1e-9
    assert repetition([f"{number}" for number in range(len(words))]) == 0

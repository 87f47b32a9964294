"""What a thought tells about its prompt, on made-up thoughts whose mutual information is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.evaluation.prompt_information import MOST_PROMPTS, prompt_information

INFORMATION, RECOGNISED, CHANCE = (
    "thought_prompt_information",
    "thought_prompt_recognised_share",
    "thought_prompt_chance",
)


def asked(prompts: int, samples: int) -> list[int]:
    return [prompt for prompt in range(prompts) for _ in range(samples)]


def noisy(prompts: list[int], noise: float, seed: int) -> list[list[str]]:
    """The prompt's name, or with probability ``noise`` that of any."""
    draws = np.random.default_rng(seed)
    count = len(set(prompts))
    return [[f"name{draws.integers(count) if draws.random() < noise else prompt}"] for prompt in prompts]


def known_information(count: int, noise: float) -> float:
    """Nats of :func:`noisy`, in closed form."""
    own, other = 1 - noise + noise / count, noise / count
    return math.log(count) + own * math.log(own) + (count - 1) * other * math.log(other)


@pytest.mark.parametrize(("prompts", "samples"), [(2, 2), (8, 16), (64, 8), (100, 2)])
def test_thoughts_that_copy_their_prompt_tell_all_of_it(prompts: int, samples: int) -> None:
    numbers = asked(prompts, samples)
    found = prompt_information([["it", "is", f"name{prompt}"] for prompt in numbers], numbers)
    assert found[INFORMATION] == pytest.approx(math.log(prompts), abs=0.02)
    assert (found[RECOGNISED], found[CHANCE]) == (1, 1 / prompts)


@pytest.mark.parametrize("thought", [[], ["careful"], ["go", "left", "go"]])
def test_thoughts_that_are_all_the_same_tell_nothing(thought: list[str]) -> None:
    numbers = asked(16, 8)
    found = prompt_information([thought] * len(numbers), numbers)
    assert found[INFORMATION] == pytest.approx(0, abs=1e-9)
    assert found[RECOGNISED] == pytest.approx(found[CHANCE])


def test_varied_thoughts_that_ignore_their_prompt_tell_nothing() -> None:
    numbers = asked(16, 8)
    values = []
    for seed in range(60):
        words = np.random.default_rng(seed).choice(list("abcdefghij"), (len(numbers), 6))
        values.append(prompt_information(words.tolist(), numbers))
    shares = [each[RECOGNISED] for each in values]
    error = np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(1 / 16, abs=4 * error) and error < 0.004
    assert 0 <= np.mean([each[INFORMATION] for each in values]) < 2 / len(numbers)


def test_a_thought_that_tells_one_of_four_kinds_tells_log_four() -> None:
    numbers = asked(16, 8)
    found = prompt_information([[f"kind{prompt % 4}"] for prompt in numbers], numbers)
    assert found[INFORMATION] == pytest.approx(math.log(4))
    assert found[RECOGNISED] == pytest.approx(1 / 4), "four prompts tie"


@pytest.mark.parametrize("noise", [0.1, 0.5, 0.9])
def test_noise_is_measured_from_below_and_closely_with_many_samples(noise: float) -> None:
    few, many = (
        np.mean(
            [
                prompt_information(noisy(asked(8, samples), noise, seed), asked(8, samples))[INFORMATION]
                for seed in range(10)
            ]
        )
        for samples in (4, 100)
    )
    true = known_information(8, noise)
    assert few < true + 0.03
    assert true - 0.06 < many < true + 0.01


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.sampled_from("abc"), max_size=4)), min_size=0, max_size=30
    )
)
def test_any_thoughts_give_a_number_between_nothing_and_all(drawn: list[tuple[int, list[str]]]) -> None:
    found = prompt_information([words for _, words in drawn], [prompt for prompt, _ in drawn])
    counts = np.unique([prompt for prompt, _ in drawn], return_counts=True)[1]
    several = int((counts >= 2).sum())
    if several < 2:
        assert found == {}
        return
    assert found[CHANCE] == 1 / several
    assert 0 <= found[RECOGNISED] <= 1 and 0 <= found[INFORMATION] <= math.log(several) + 1e-9
    other = {"a": "x", "b": "y", "c": "z"}
    renamed = prompt_information(
        [[other[word] for word in words] for _, words in drawn], [9 - prompt for prompt, _ in drawn]
    )
    assert renamed == pytest.approx(found), "neither the names of words nor those of prompts matter"


def test_of_many_prompts_the_first_are_told_apart() -> None:
    numbers = asked(MOST_PROMPTS + 40, 2)
    found = prompt_information([[f"name{prompt}"] for prompt in numbers], numbers)
    assert found[CHANCE] == 1 / MOST_PROMPTS
    assert found[INFORMATION] == pytest.approx(math.log(MOST_PROMPTS), abs=0.02)

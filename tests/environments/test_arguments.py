"""No value of a configuration makes a built-in environment fail otherwise than by name, or be what was not meant."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from starpo.environments.registry import make
from starpo.errors import UserError

NOT_A_NUMBER = float("nan")
#: What YAML may hold.
VALUES: tuple[Any, ...] = (
    *(None, True, "no", "6", "", -1, 0, 1.5, 10**30, NOT_A_NUMBER, float("inf")),
    *([], [6], [6, 6, 6], ["6", "6"], [6.0, 6.0], [True, True], {}, {"wall": 5}, {5: "#"}, ["wall"]),
)
ARGUMENTS = [
    (name, argument)
    for name in ("bandit", "frozen_lake", "sokoban", "webshop")
    for argument in inspect.signature(type(make(name))).parameters
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_value_is_refused_by_name_or_gives_an_environment_that_plays(name: str, argument: str) -> None:
    refused = 0
    for value in VALUES:
        try:
            env = make(name, **{argument: value})
        except (ValueError, UserError) as error:
            refused += 1
            assert argument.removesuffix("s") in str(error), value
            # A text may be the path of a file: what is there says the rest.
            assert ("expected" if isinstance(error, UserError) else "allowed") in str(error), value
            continue
        env.reset(seed=0)
        env.step(env.random_action(np.random.default_rng(0)))
    assert refused > len(VALUES) / 2


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("bandit", "reversed_meaning"),
        ("frozen_lake", "slippery"),
        ("frozen_lake", "coordinates"),
        ("frozen_lake", "surroundings"),
        ("sokoban", "coordinates"),
        ("webshop", "weighted_goals"),
        ("webshop", "show_attributes"),
        ("webshop", "hints"),
        ("webshop", "list_actions"),
        ("webshop", "binary_reward"),
    ],
)
def test_a_switch_takes_no_text_whose_truth_would_be_the_opposite(name: str, argument: str) -> None:
    for value in ("no", "false", 0, None):
        with pytest.raises(ValueError, match=f"{argument} is {value!r}, allowed: true, false"):
            make(name, **{argument: value})


def test_a_difficulty_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_optimal 1000000000, allowed: .* <= 1000"):
        make("sokoban", max_optimal=10**9)


def test_a_floor_with_too_many_positions_ends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starpo.environments.sokoban_generator.MAX_STATES", 100)
    env = make("sokoban", size=(12, 12), num_boxes=3, min_optimal=8, max_optimal=8)
    with pytest.raises(
        ValueError, match=r"a 12x12 floor with 3 boxes has more than 100 positions within 8 moves"
    ):
        env.reset(seed=0)

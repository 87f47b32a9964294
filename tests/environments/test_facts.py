"""What environments say of the states behind their texts is what their solvers say of the states themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from starpo.environments.registry import make
from starpo.environments.solvers import optimal_actions

KNOWING = [
    "bandit",
    "bandit_reversed",
    "bandit_occupations",
    "frozen_lake_no_slip",
    "frozen_lake_ragen_v2_no_slip",
    "sokoban",
    "sokoban_different_vocab",
    "sokoban_ragen_v2",
]


@pytest.mark.parametrize("name", KNOWING)
def test_the_distance_is_the_length_of_the_solver_s_plan_all_along_it(name: str) -> None:
    env, asked = make(name), make(name)
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        plan = optimal_actions(env)
        for left in range(len(plan), 0, -1):
            assert asked.distance(observation) == left
            observation = env.step(plan[len(plan) - left])[0]
        assert asked.distance(observation) == 0


@pytest.mark.parametrize("name", KNOWING)
def test_facts_are_those_of_the_state_and_of_no_other_text(name: str) -> None:
    env, asked = make(name), make(name)
    draw = np.random.default_rng(0)
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        facts = asked.facts(observation)
        assert facts is not None
        assert facts.actions == env.action_names
        env.step(env.random_action(draw))
    for text in ("", "x", "Arms: Nobody, Anchor", "P_\n_G", "####\n#P##"):
        assert (asked.facts(text), asked.distance(text)) == (None, None)


def test_a_lake_s_facts() -> None:
    env = make("frozen_lake", size=3)
    facts = env.facts("_PO\n__O\n_OG\nPlayer (0,1).")
    assert facts is not None
    assert facts.places["player"] == {(0, 1)}
    assert facts.places["hole"] == {(0, 2), (1, 2), (2, 1)}
    assert facts.places["goal"] == {(2, 2)}
    assert {name: set(words) for name, words in facts.around.items()} == {
        "left": {"ice"},
        "down": {"ice"},
        "right": {"hole"},
        "up": {"edge"},
    }
    assert env.distance("_PO\n__O\n_OG") == math.inf
    assert env.distance("__X\n__O\n_OG") == math.inf
    assert env.distance("__O\n__O\n_O√") == 0


def test_a_room_s_facts() -> None:
    env = make("sokoban")
    facts = env.facts("######\n#S___#\n#_X__#\n#____#\n#____#\n######")
    assert facts is not None
    assert facts.places["player"] == facts.places["target"] == {(1, 1)}
    assert facts.places["box"] == {(2, 2)}
    assert (1, 1) not in facts.places["floor"]
    assert facts.around["up"] == {"wall"}
    assert facts.around["right"] == {"floor"}
    # A box in a corner that is no target stays there.
    assert env.distance("######\n#X___#\n#P___#\n#___O#\n#____#\n######") == math.inf


def test_arms_and_the_names_that_are_not_offered() -> None:
    env = make("bandit")
    facts = env.facts("Arms: Dragon, Anchor")
    assert facts is not None
    assert facts.present == {"Dragon", "Anchor"}
    assert len(facts.absent) == 38
    assert env.distance("Dragon: 0.0 points") == 0
    assert env.distance("Anchor: 0.1 points") == math.inf
    assert make("bandit_reversed").distance("Anchor: 0.1 points") == 0
    assert env.facts("Arms: Librarian, Pirate") is None

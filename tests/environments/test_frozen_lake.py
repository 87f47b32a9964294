"""Frozen Lake against recorded episodes, its slip law and its arguments."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from starpo.environments.frozen_lake import ACTIONS, FrozenLake, Lake

OPEN_5X5 = {
    "centre": "_____\n_____\n__P__\n_____\n____G",
    "corner": "P____\n_____\n_____\n_____\n____G",
}


def test_maps_equal_the_recorded_ones_of_the_same_seed(golden):
    env = FrozenLake()
    for recorded in golden("frozen_lake.json")["maps"]:
        assert env.reset(seed=recorded["seed"])[0] == recorded["render"], recorded["seed"]
        lake = Lake.parse(env.board)
        assert [list(divmod(cell, 4)) for cell in (lake.player, lake.goal)] == [
            recorded["start"],
            recorded["goal"],
        ]


def test_scripted_cases_replay_to_the_recorded_boards_rewards_and_ends(golden):
    for case in golden("frozen_lake.json")["cases"]:
        env = FrozenLake(slippery=False, size=len(case["map"]))
        board, _ = env.reset(options={"board": case["render0"]})
        assert board == case["render0"]
        over = False
        for step in case["steps"]:
            if over:  # the peer goes on after the end; here that is an error
                with pytest.raises(RuntimeError, match="after the episode ended"):
                    env.step(step["action"])
                continue
            board, reward, over, truncated, info = env.step(step["action"])
            assert (board, reward, over, truncated) == (step["board"], step["reward"], step["done"], False)
            assert (info["effective"], info["success"]) == (step["effective"], step["success"])


def test_slippery_rollouts_replay_with_the_recorded_stream_of_luck(golden):
    for rollout in golden("frozen_lake.json")["seeded_rollouts"]:
        env = FrozenLake()
        board, _ = env.reset(seed=rollout["seed"])
        assert board == rollout["board"]
        env.dynamics.random()  # the peer spends one draw at reset
        over = False
        for step in rollout["steps"]:
            if over:
                break
            board, reward, over, _, info = env.step(step["action"])
            assert (board, reward, over) == (step["board"], step["reward"], step["done"])
            assert (info["effective"], info["success"]) == (step["effective"], step["success"])


@pytest.mark.parametrize("place", ["centre", "corner"])
@pytest.mark.parametrize("action", ACTIONS)
def test_slips_follow_the_recorded_law(golden, action, place):
    law = golden("frozen_lake.json")["transition_law"][f"exact_P_{place}"][action]
    expected: Counter[int] = Counter()
    for probability, cell, _, _ in law:  # at the rim two outcomes can be the same cell
        expected[cell] += probability
    n = 2000
    counts = Counter(_cell_after(action, dynamics_seed, place) for dynamics_seed in range(n))
    assert set(counts) == set(expected)
    for cell, probability in expected.items():
        # five standard deviations of a binomial share
        assert abs(counts[cell] / n - probability) <= 5 * (probability * (1 - probability) / n) ** 0.5


@pytest.mark.parametrize("slippery", [True, False])
@pytest.mark.parametrize("action", ACTIONS)
def test_ten_thousand_recorded_moves_went_where_ours_go(golden, action, slippery):
    ice = "slippery" if slippery else "not_slippery"
    theirs = golden("frozen_lake.json")["transition_law"]["empirical"][ice][action]["counts"]
    cells = {"Left": 11, "Down": 17, "Right": 13, "Up": 7}  # around the centre, 12
    landed = Counter(_cell_after(action, seed, slippery=slippery) for seed in range(3000 if slippery else 20))
    assert {cells[heading] for heading in theirs} == set(landed)
    if slippery:
        table = [[landed[cells[heading]] for heading in theirs], list(theirs.values())]
        assert chi2_contingency(table).pvalue > 0.001


def _cell_after(action: str, dynamics_seed: int, place: str = "centre", **arguments: float) -> int:
    env = _open_lake(**arguments)
    env.reset(options={"board": OPEN_5X5[place], "dynamics_seed": dynamics_seed})
    return Lake.parse(env.step(action)[0]).player


@cache
def _open_lake(**arguments: float) -> FrozenLake:
    return FrozenLake(size=5, **arguments)


def test_success_probability_is_the_share_of_moves_that_go_as_chosen():
    counts = Counter(_cell_after("Left", seed, success_probability=0.8) for seed in range(2000))
    assert set(counts) == {11, 7, 17}  # left, up, down of the centre, 12; never right
    assert counts[11] / 2000 == pytest.approx(0.8, abs=0.03)
    assert counts[7] / 2000 == pytest.approx(0.1, abs=0.025)


def test_luck_is_untouched_by_the_instance_seed():
    env = FrozenLake()
    env.reset(seed=1, options={"dynamics_seed": 5})
    first = env.dynamics.random()
    env.reset(seed=2, options={"dynamics_seed": 5})
    assert env.dynamics.random() == first == np.random.Generator(np.random.PCG64(5)).random()


def test_coordinates_line_follows_the_player():
    env = FrozenLake(slippery=False, coordinates=True, size=3)
    board, _ = env.reset(options={"board": "_P_\nO__\nG__"})
    assert board == "_P_\nO__\nG__\nPlayer (0,1). Goal (2,0)."
    assert env.step("Down")[0].endswith("\nPlayer (1,1). Goal (2,0).")
    assert "Coordinates" in env.rules


def test_rules_say_how_slippery_the_ice_is():
    assert "probability 0.33" in FrozenLake().rules
    assert "not slippery" in FrozenLake(slippery=False).rules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 1}, "size is 1, allowed: whole numbers 2 to 32"),
        ({"frozen_probability": 0}, "frozen_probability is 0"),
        ({"success_probability": 1.5}, "success_probability is 1.5"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        FrozenLake(**arguments)


@pytest.mark.parametrize(
    "board", ["P_\n_", "__\n_G", "PP\n_G", "P_\nGG", "PG\n_Q", "X_\n_G", "P__\n___\n__G"]
)
def test_bad_boards_are_refused(board):
    env = FrozenLake(size=2)
    with pytest.raises(ValueError, match="FrozenLake: board"):
        env.reset(options={"board": board})

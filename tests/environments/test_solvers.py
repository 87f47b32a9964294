"""Solvers against recorded optima, and their plans against the environments."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import ACTIONS, FrozenLake, Lake
from starpo.environments.registry import make
from starpo.environments.solvers import optimal_actions, plan_frozen_lake, solve_frozen_lake, solve_sokoban

THIRD = 1 / 3
seeds = st.integers(0, 2**32)


class Guess(TextEnvironment):
    """An environment of a user's own, without a solver."""

    rules, action_names, return_range = "", ("Heads", "Tails"), (0.0, 0.0)

    def _begin(self, instance):
        return "", {"success": False}


def value(board: str, turns: int, per_turn: int, total: int | None = None, at_least: int = 1) -> float:
    return plan_frozen_lake(
        board,
        success_probability=THIRD,
        turns=turns,
        actions_per_turn=per_turn,
        total_actions=total,
        min_actions_per_turn=at_least,
    ).value


def test_chances_of_success_on_slippery_lakes_equal_the_recorded_ones(golden):
    recorded = golden("frozen_lake.json")
    boards = {each["seed"]: each["render"] for each in recorded["maps"]}
    for case in recorded["value_iteration"]:
        board = boards.get(case["seed"]) or FrozenLake().reset(seed=case["seed"])[0]
        for horizon, expected in case["closed_loop"].items():
            assert value(board, int(horizon), 1) == pytest.approx(expected, abs=1e-12)
        for blocks, expected in case["blocks"].items():
            turns, length = map(int, blocks.split("x"))
            assert value(board, turns, length, at_least=length) == pytest.approx(expected, abs=1e-12)
        for per_turn, total in ((5, 10), (5, 25), (2, 10)):
            expected = case[f"turns5_per{per_turn}_total{total}"]
            assert value(board, 5, per_turn, total) == pytest.approx(expected, abs=1e-12)
        distance = solve_frozen_lake(board).distances[Lake.parse(board).player]
        for moves, expected in case["not_slippery_reachable"].items():
            assert (distance <= int(moves)) == (expected == 1)


def test_mean_ceiling_over_the_validation_seeds_equals_the_recorded_one(golden):
    expected = golden("frozen_lake.json")["summary"]["val_seeds_123_378"]
    env = FrozenLake()
    boards = [env.reset(seed=seed)[0] for seed in range(123, 379)]
    mean = sum(value(board, 10, 1) for board in boards) / len(boards)
    assert mean == pytest.approx(expected["closed10"], abs=1e-12)
    mean = sum(value(board, 5, 5, 10) for board in boards) / len(boards)
    assert mean == pytest.approx(expected["turns5_per5_total10"], abs=1e-12)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_the_planned_block_earns_what_the_plan_promises(seed):
    """One turn of a blind block, by exact expectation over the slips, written independently of the solver."""
    board, _ = FrozenLake().reset(seed=seed)
    plan = plan_frozen_lake(board, success_probability=THIRD, turns=1, actions_per_turn=3)
    lake = Lake.parse(board)
    assert _chance(lake, lake.player, plan.block) == pytest.approx(plan.value, abs=1e-12)


def _chance(lake: Lake, cell: int, block: tuple[str, ...]) -> float:
    if lake.cells[cell] != "_" or not block:
        return float(lake.cells[cell] == "G")
    row, column = divmod(cell, lake.size)
    heading = ACTIONS.index(block[0])
    total = 0.0
    for turn in (-1, 0, 1):
        down, right = ((0, -1), (1, 0), (0, 1), (-1, 0))[(heading + turn) % 4]
        inside = 0 <= row + down < lake.size and 0 <= column + right < lake.size
        target = (row + down) * lake.size + column + right if inside else cell
        total += THIRD * _chance(lake, target, block[1:])
    return total


def test_playing_the_closed_loop_optimum_wins_as_often_as_predicted():
    env = FrozenLake()
    wins = predicted = 0.0
    for seed in range(400):
        env.reset(seed=seed, options={"dynamics_seed": seed + 10_000})
        predicted += plan_frozen_lake(env, turns=6, actions_per_turn=1).value
        for left in range(6, 0, -1):
            plan = plan_frozen_lake(env, turns=left, actions_per_turn=1)
            _, reward, terminated, *_ = env.step(plan.block[0])
            wins += reward
            if terminated:
                break
    assert wins / 400 == pytest.approx(predicted / 400, abs=0.09)


def test_recorded_sokoban_rooms_are_solved_in_the_recorded_number_of_moves(golden):
    for episode in golden("sokoban_dynamics.json")["episodes"]:
        solution = solve_sokoban(episode["board"])
        assert solution is not None
        assert len(solution) == episode["optimal_length"], episode["id"]


def test_unsolvable_and_solved_sokoban_rooms():
    assert solve_sokoban("#####\n#X_P#\n#__O#\n#####") is None
    assert solve_sokoban("#####\n#√_P#\n#___#\n#####") == []
    with pytest.raises(RuntimeError, match="within 3 states"):
        solve_sokoban("#######\n#P___X#\n#____O#\n#_____#\n#######", max_states=3)


@pytest.mark.parametrize(
    "name",
    [
        "frozen_lake_no_slip",
        "sokoban",
        "sokoban_different_vocab",
        "sokoban_large",
        "bandit",
        "bandit_reversed",
    ],
)
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_replaying_the_plan_solves_every_task_without_slips(name, seed):
    env = make(name)
    env.reset(seed=seed)
    plan = optimal_actions(env)
    for number, action in enumerate(plan, start=1):
        *_, terminated, _, info = env.step(action)
        assert terminated == (number == len(plan))
    assert info["success"]
    assert optimal_actions(env) == []


@pytest.mark.parametrize("name", ["frozen_lake", "frozen_lake_8x8"])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_the_slippery_plan_starts_with_an_optimal_action_and_names_legal_ones(name, seed):
    env = make(name)
    env.reset(seed=seed)
    plan = optimal_actions(env)
    assert plan
    assert set(plan) <= set(ACTIONS)
    horizon = max(10, 2 * solve_frozen_lake(env).distances[Lake.parse(env.board).player])
    assert plan_frozen_lake(env, turns=horizon, actions_per_turn=1).block == (plan[0],)


def test_a_plan_goes_on_from_the_middle_of_an_episode():
    env = make("sokoban", min_optimal=6, max_optimal=6)
    env.reset(seed=1)
    first = optimal_actions(env)
    env.step(first[0])
    assert len(optimal_actions(env)) == len(first) - 1


def test_limits_and_laws_are_checked():
    with pytest.raises(ValueError, match="allowed: 1 to 5"):
        plan_frozen_lake("P_\n_G", success_probability=1.0, actions_per_turn=6)
    with pytest.raises(ValueError, match="give success_probability"):
        plan_frozen_lake("P_\n_G")
    with pytest.raises(TypeError, match="no solver for Guess"):
        env = Guess()
        env.reset(seed=0)
        optimal_actions(env)

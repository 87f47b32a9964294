"""Solvers against recorded optima, and their plans against the environments."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import ACTIONS, FrozenLake, Lake
from starpo.environments.frozen_lake_solver import chance_of, plan_frozen_lake, random_walk, solve_frozen_lake
from starpo.environments.records import Expectation, Limits
from starpo.environments.registry import make
from starpo.environments.sokoban_solver import best_within, random_play, solve_sokoban
from starpo.environments.solvers import best_play, optimal_actions

THIRD = 1 / 3
seeds = st.integers(0, 2**32)


class Guess(TextEnvironment):
    """An environment of a user's own, without a solver."""

    rules, action_names, return_range = "", ("Heads", "Tails"), (0.0, 0.0)

    def _begin(self, instance):
        return "", {"success": False}


class Countdown(TextEnvironment):
    """Three steps to the end, each worth 1; it knows its own solution."""

    rules, action_names, return_range = "", ("Down", "Wait"), (0.0, 3.0)

    def _begin(self, instance):
        self.left = 3
        return "3", {"success": False}

    def _act(self, action):
        self.left -= action == "Down"
        over = self.left == 0
        return str(self.left), float(action == "Down"), over, False, {"success": over, "effective": True}

    def optimal_actions(self):
        return ["Down"] * self.left


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


def lakes(*seeds: int) -> list[str]:
    """The boards of the default slippery lake."""
    env = FrozenLake()
    return [env.reset(seed=seed)[0] for seed in range(*seeds)]


def test_mean_ceilings_and_random_play_over_the_validation_seeds_equal_the_recorded_ones(golden):
    expected = golden("frozen_lake.json")["summary"]["val_seeds_123_378"]
    boards = lakes(123, 379)
    measured = {
        "closed10": [value(board, 10, 1) for board in boards],
        "closed25": [value(board, 25, 1) for board in boards],
        "turns5_per5_total10": [value(board, 5, 5, 10) for board in boards],
        "blocks2x5": [value(board, 2, 5, at_least=5) for board in boards],
        "blocks5x2": [value(board, 5, 2, at_least=2) for board in boards],
        "blocks5x5": [value(board, 5, 5, at_least=5) for board in boards],
        "uniform_random_10": [random_walk(board, success_probability=THIRD, moves=10) for board in boards],
    }
    assert {name: sum(values) / len(values) for name, values in measured.items()} == pytest.approx(
        expected, abs=1e-12
    )


def test_mean_ceilings_over_the_first_seeds_equal_the_recorded_ones(golden):
    expected = golden("frozen_lake.json")["summary"]
    first = lakes(50)
    for horizon, mean in expected["mean_bound_first50"].items():
        assert sum(value(board, int(horizon), 1) for board in first) / 50 == pytest.approx(mean, abs=1e-12)
    for blocks, mean in expected["mean_bound_first50_blocks"].items():
        turns, length = map(int, blocks.split("x"))
        found = [value(board, turns, length, at_least=length) for board in first]
        assert sum(found) / 50 == pytest.approx(mean, abs=1e-12)
    for total in (10, 25):
        mean = expected[f"mean_first50_turns5_per5_total{total}"]
        assert sum(value(board, 5, 5, total) for board in first) / 50 == pytest.approx(mean, abs=1e-12)
    boards = lakes(300)
    mean = sum(value(board, 10, 1) for board in boards) / 300
    assert mean == pytest.approx(expected["mean_bound_300_horizon10"], abs=1e-12)


@given(seed=seeds)
@examples(0.2)
def test_the_planned_block_earns_what_the_plan_promises(seed):
    """One turn of a blind block, by exact expectation over the slips, written independently of the solver."""
    board, _ = FrozenLake().reset(seed=seed)
    plan = plan_frozen_lake(board, success_probability=THIRD, turns=1, actions_per_turn=3)
    lake = Lake.parse(board)
    assert _chance(lake, lake.player, plan.block) == pytest.approx(plan.value, abs=1e-12)


@given(seed=seeds, actions=st.lists(st.sampled_from(ACTIONS), max_size=5))
def test_the_chance_of_a_given_sequence_is_its_exact_expectation(seed, actions):
    board, _ = FrozenLake().reset(seed=seed)
    lake = Lake.parse(board)
    expected = _chance(lake, lake.player, tuple(actions))
    assert chance_of(board, actions, success_probability=THIRD) == pytest.approx(expected, abs=1e-12)


@given(seed=seeds, moves=st.integers(0, 4))
@examples(0.2)
def test_random_play_is_the_mean_over_all_sequences(seed, moves):
    board, _ = FrozenLake().reset(seed=seed)
    lake = Lake.parse(board)
    sequences = list(product(ACTIONS, repeat=moves))
    expected = sum(_chance(lake, lake.player, each) for each in sequences) / len(sequences)
    assert random_walk(board, success_probability=THIRD, moves=moves) == pytest.approx(expected, abs=1e-12)


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


@given(
    size=st.integers(2, 3),
    draw=st.randoms(use_true_random=False),
    law=st.sampled_from([0.0, THIRD, 0.5, 0.8, 1.0]),
    limits=st.sampled_from([(1, 3, 3), (2, 3, 4), (3, 2, 4), (3, 3, 5), (4, 2, 5), (2, 3, 9)]),
)
def test_the_optimum_under_limits_is_that_of_trying_every_block_of_every_turn(size, draw, law, limits):
    """All laws and limits on small lakes, written independently of the solver and without its shortcuts."""
    ground = [draw.choice("___O") for _ in range(size * size)]
    player, goal = draw.sample(range(size * size), 2)
    ground[player], ground[goal] = "_", "G"
    turns, per_turn, total = limits

    @cache
    def best(cell: int, turns_left: int, actions_left: int) -> float:
        if ground[cell] != "_" or not turns_left or not actions_left:
            return float(ground[cell] == "G")
        return max(
            sum(chance * best(end, turns_left - 1, actions_left - length) for end, chance in ends.items())
            for length in range(1, min(per_turn, actions_left) + 1)
            for ends in (after(cell, block) for block in product(range(4), repeat=length))
        )

    def after(cell: int, block: tuple[int, ...]) -> dict[int, float]:
        spread = {cell: 1.0}
        for heading in block:
            following: dict[int, float] = {}
            for at, chance in spread.items():
                for turn, share in ((-1, (1 - law) / 2), (0, law), (1, (1 - law) / 2)):
                    row, column = divmod(at, size)
                    down, right = ((0, -1), (1, 0), (0, 1), (-1, 0))[(heading + turn) % 4]
                    inside = 0 <= row + down < size and 0 <= column + right < size and ground[at] == "_"
                    end = (row + down) * size + column + right if inside else at
                    following[end] = following.get(end, 0.0) + chance * share
            spread = following
        return spread

    shown = ["P" if cell == player else symbol for cell, symbol in enumerate(ground)]
    board = "\n".join("".join(shown[row * size : (row + 1) * size]) for row in range(size))
    plan = plan_frozen_lake(
        board, success_probability=law, turns=turns, actions_per_turn=per_turn, total_actions=total
    )
    assert plan.value == pytest.approx(best(player, turns, total), abs=1e-12)


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


def test_recorded_sokoban_rooms_are_solvable_within_a_budget_as_recorded(golden):
    for episode in golden("sokoban_dynamics.json")["episodes"]:
        shortest = episode["optimal_length"]
        for budget in (1, 3, 5, 10):
            solved, earned = best_within(episode["board"], budget)
            assert solved == (shortest <= budget), episode["id"]
            if solved:
                assert earned == pytest.approx(10 + episode["num_boxes"] - 0.1 * shortest), episode["id"]
            else:
                assert 0 <= earned < 10, episode["id"]


def test_optimal_recorded_sokoban_episodes_earn_the_optimum(golden):
    checked = 0
    for episode in golden("sokoban_dynamics.json")["episodes"]:
        steps = episode["steps"][: episode["optimal_length"]]
        if episode["kind"] == "optimal" and steps[-1]["success"]:
            earned = sum(step["reward"] for step in steps)
            assert best_within(episode["board"], 100) == (True, pytest.approx(earned)), episode["id"]
            checked += 1
    assert checked > 10


@given(seed=seeds, moves=st.integers(0, 4), boxes=st.integers(1, 2))
@examples(0.3)
def test_sokoban_within_few_moves_by_trying_all_sequences(seed, moves, boxes):
    """Optimum and random play, from the environment itself and independent of the solver."""
    env = make("sokoban", num_boxes=boxes, max_optimal=5)
    env.reset(seed=seed)
    board = env.board
    outcomes = [_play(env, board, sequence) for sequence in product(env.action_names, repeat=moves)]
    solved, best = best_within(board, moves)
    assert solved == any(success for success, _ in outcomes)
    # Doing less is possible too, and stopping at the best moment is what a shorter sequence does.
    shorter = [
        _play(env, board, sequence)[1]
        for length in range(moves + 1)
        for sequence in product(env.action_names, repeat=length)
    ]
    assert best == pytest.approx(max(shorter))
    success, earned = random_play(board, moves)
    assert success == pytest.approx(sum(each for each, _ in outcomes) / len(outcomes))
    assert earned == pytest.approx(sum(each for _, each in outcomes) / len(outcomes))


def _play(env: TextEnvironment, board: str, actions: tuple[str, ...]) -> tuple[bool, float]:
    env.reset(seed=0, options={"board": board})
    earned, success = 0.0, False
    for action in actions:
        _, reward, terminated, _, info = env.step(action)
        earned += reward
        success = info["success"]
        if terminated:
            break
    return success, earned


def test_the_best_and_random_play_keep_to_the_limits_of_the_harness():
    env = make("frozen_lake_no_slip")
    env.reset(seed=0, options={"board": "P___\n____\n____\n___G"})
    assert best_play(env, Limits(5, 5, 10)) == Expectation(1, 1)
    assert best_play(env, Limits(1, 5, 10)) == Expectation(0, 0), "six moves do not fit into one turn of five"
    assert best_play(env, Limits(5, 5, 5)) == Expectation(0, 0), "nor into five actions"
    assert env.random_play(Limits(1, 5, 10)) == Expectation(0, 0)
    assert env.random_play(Limits(2, 3, 10)) == Expectation(*[pytest.approx(20 / 4**6)] * 2), (
        "20 of the sequences of six moves are shortest paths"
    )


def test_on_slippery_ice_turns_and_actions_both_bind():
    env = make("frozen_lake")
    env.reset(seed=3)
    values = [
        best_play(env, Limits(turns, per_turn, actions)).success
        for turns, per_turn, actions in ((2, 5, 10), (5, 5, 10), (10, 1, 10), (10, 5, 10), (10, 5, 20))
    ]
    assert values == sorted(values), "more looks and more moves never hurt"
    assert values[2] == values[3] < values[4], "with a turn for every move, blocks are of no use"
    assert best_play(env, Limits(5, 8, 40)) is None, "too many blocks to try"
    assert best_play(env, Limits(5, 8, 7)) is not None, "blocks cannot be longer than the budget"


def test_a_bandit_is_worth_its_better_arm_and_random_pulls_half_of_both():
    env = make("bandit")
    env.reset(seed=0)
    assert best_play(env, Limits(1, 1, 1)) == Expectation(1.0, 0.25)
    assert env.random_play(Limits(1, 1, 1)) == Expectation(0.5, pytest.approx(0.175))


def test_an_environment_without_a_solver_has_no_optimum_and_no_closed_form():
    env = Guess()
    env.reset(seed=0)
    assert best_play(env, Limits(5, 5, 10)) is None
    assert env.random_play(Limits(5, 5, 10)) is None


def test_an_environment_that_solves_itself_has_its_plan_played_out_where_it_fits_and_is_left_as_it_was():
    env = Countdown()
    env.reset(seed=0)
    assert best_play(env, Limits(1, 5, 5)) == Expectation(1.0, 3.0)
    assert best_play(env, Limits(1, 2, 5)) is None
    assert env.left == 3


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
@examples(0.25)
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
@examples(0.15)
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
    with pytest.raises(ValueError, match="allowed: 1 to 7"):
        plan_frozen_lake("P_\n_G", success_probability=1.0, actions_per_turn=8)
    with pytest.raises(ValueError, match="give success_probability"):
        plan_frozen_lake("P_\n_G")
    with pytest.raises(TypeError, match="no solver for Guess"):
        env = Guess()
        env.reset(seed=0)
        optimal_actions(env)

"""Sokoban against recorded episodes, its room generator and its symbols."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from starpo.environments.registry import make
from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_room import DIFFERENT_SYMBOLS, SYMBOLS, Room
from starpo.environments.sokoban_solver import solve_sokoban
from starpo.environments.splits import Split, split_of

CORRIDOR = "######\n#PX_O#\n######\n######\n######"


def test_recorded_episodes_replay_step_by_step(golden):
    for episode in golden("sokoban_dynamics.json")["episodes"]:
        env = Sokoban(size=episode["dim"], num_boxes=episode["num_boxes"], max_steps=episode["max_steps"])
        board, _ = env.reset(options={"board": episode["board"]})
        assert board == episode["board"]
        over = False
        for number, (action, step) in enumerate(zip(episode["actions"], episode["steps"], strict=True)):
            if over:  # the peer goes on after the end; here that is an error
                with pytest.raises(RuntimeError, match="after the episode ended"):
                    env.step(action)
                continue
            board, reward, terminated, truncated, info = env.step(action)
            where = f"episode {episode['id']}, step {number}"
            assert board == step["board"], where
            assert reward == pytest.approx(step["reward"], abs=1e-9), where
            assert (terminated or truncated) == step["done"], where
            assert terminated == info["success"] == step["success"], where
            assert info["effective"] == step["effective"], where
            assert info["boxes_on_target"] == step["boxes_on_target"], where
            assert info["steps"] == number + 1, where
            over = terminated or truncated


def test_room_text_and_numbers_agree_with_the_recorded_cells(golden):
    for episode in golden("sokoban_dynamics.json")["episodes"]:
        room = Room.parse(episode["board"])
        fixed = "\n".join(episode["room_fixed"])
        assert room.floor == sum(1 << cell for cell, code in enumerate(fixed) if code in "12")
        assert room.targets == sum(1 << cell for cell, code in enumerate(fixed) if code == "2")
        assert room.text() == episode["board"]


@pytest.mark.parametrize(
    ("size", "num_boxes", "shortest", "longest"),
    [((6, 6), 1, 1, 7), ((8, 8), 2, 1, 10), ((6, 6), 1, 10, 12), ((7, 9), 3, 5, 8)],
)
def test_generated_rooms_have_the_difficulty_asked_for(size, num_boxes, shortest, longest):
    env = Sokoban(size=size, num_boxes=num_boxes, min_optimal=shortest, max_optimal=longest)
    lengths = set()
    for seed in range(60):
        env.reset(seed=seed)
        room = env.room
        assert not room.boxes & room.targets
        assert room.boxes.bit_count() == room.targets.bit_count() == num_boxes
        assert Room.parse(env.board) == room  # one player, closed by walls
        lengths.add(len(solve_sokoban(env) or []))
    assert lengths == set(range(max(shortest, num_boxes), longest + 1))


@pytest.mark.parametrize(
    ("name", "recorded"),
    [("sokoban_paper", "simple_6x6_1box_depth300"), ("sokoban_large_paper", "larger_8x8_2box_depth10")],
)
def test_rooms_of_the_paper_are_as_hard_as_the_recorded_ones(golden, name, recorded):
    statistics = golden("sokoban_generation_stats.json")["sets"][recorded]
    histogram = {int(length): count for length, count in statistics["optimal_histogram"].items()}
    env = make(name)
    assert (list(env.size), env.num_boxes) == (statistics["dim"], statistics["num_boxes"])
    lengths = Counter()
    for seed in range(600):
        env.reset(seed=seed)
        plan = solve_sokoban(env)
        assert plan, "solvable, and not solved at the start"
        assert not env.room.boxes & env.room.targets
        lengths[len(plan)] += 1
    assert set(lengths) <= set(histogram)
    # Chi-squared over two samples; rare lengths in one cell, as its approximation wants five and more in each.
    common = [length for length, count in histogram.items() if count >= 10]
    cells = [
        [*(counts.get(length, 0) for length in common), sum(counts.values()) - sum(counts[n] for n in common)]
        for counts in (lengths, Counter(histogram))
    ]
    assert chi2_contingency(cells).pvalue > 0.01
    mean = sum(length * count for length, count in lengths.items()) / 600
    assert mean == pytest.approx(statistics["mean_optimal"], abs=0.3)


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("sokoban_paper", "simple_val_seeds_123"),
        ("sokoban_paper", "simple_train_seeds_10000"),
        ("sokoban_large_paper", "larger_val_seeds_123"),
    ],
)
def test_rooms_of_the_paper_are_as_hard_as_those_that_the_law_was_not_taken_from(golden, name, recorded):
    histogram = golden("sokoban_generation_stats.json")["sets"][recorded]["optimal_histogram"]
    theirs = Counter({int(length): count for length, count in histogram.items()})
    env, ours = make(name), Counter()
    for seed in range(1000, 1500):
        env.reset(seed=seed)
        ours[len(solve_sokoban(env) or [])] += 1
    common = [length for length in theirs if theirs[length] >= 10 and ours[length] >= 5]
    cells = [
        [*(each[n] for n in common), each.total() - sum(each[n] for n in common)] for each in (ours, theirs)
    ]
    assert chi2_contingency(cells).pvalue > 0.01


@pytest.mark.parametrize(("name", "size"), [("sokoban_paper", [6, 6]), ("sokoban_large_paper", [8, 8])])
def test_rooms_of_the_paper_are_as_open_as_the_recorded_ones(golden, name, size):
    recorded = [e["board"] for e in golden("sokoban_dynamics.json")["episodes"] if e["dim"] == size]
    env = make(name)
    ours = [env.reset(seed=seed)[0] for seed in range(500)]
    walls, theirs = (np.array([board.count("#") for board in boards]) for boards in (ours, recorded))
    assert walls.mean() == pytest.approx(theirs.mean(), rel=0.05)
    assert walls.std() == pytest.approx(theirs.std(), rel=0.3)
    for board in ours:
        assert (board.count("X"), board.count("O"), board.count("P")) == (env.num_boxes, env.num_boxes, 1)


def test_lengths_can_be_cut_to_a_range_of_the_recorded_ones():
    env = make("sokoban_paper", min_optimal=9)
    lengths = set()
    for seed in range(40):
        env.reset(seed=seed)
        lengths.add(len(solve_sokoban(env) or []))
    assert lengths <= {9, 10, 11}
    assert len(lengths) > 1


def test_rooms_are_varied():
    env = Sokoban()
    assert len({env.reset(seed=seed)[0] for seed in range(300)}) > 270


def test_impossible_difficulty_says_so():
    with pytest.raises(ValueError, match=r"none of .* random 5x5 floors with 1 box.* solution of 90 moves"):
        Sokoban(size=(5, 5), min_optimal=90, max_optimal=90).reset(seed=0)


def test_a_win_on_the_last_step_is_terminated_not_truncated():
    env = Sokoban(size=(5, 6), max_steps=2)
    env.reset(options={"board": CORRIDOR})
    assert env.step("Right")[1:4] == (pytest.approx(-0.1), False, False)
    assert env.step("Right")[1:4] == (pytest.approx(10.9), True, False)


def test_the_step_limit_truncates():
    env = Sokoban(size=(5, 6), max_steps=2)
    env.reset(options={"board": CORRIDOR})
    env.step("Up")
    assert env.step("Up")[2:4] == (False, True)


def test_a_step_that_moves_no_box_costs_what_is_declared():
    env = Sokoban()
    env.reset(seed=0)
    assert [env.step("Up")[1] for _ in range(6)][-1] == -env.action_cost == -0.1


def test_the_best_and_the_worst_episode_touch_the_return_range():
    env = Sokoban(size=(5, 6), max_steps=30)
    env.reset(options={"board": CORRIDOR.replace("PX_O", "_PXO")})
    assert env.step("Right")[1] == pytest.approx(env.return_range[1])
    env.reset(options={"board": CORRIDOR})
    assert sum(env.step("Up")[1] for _ in range(30)) == pytest.approx(env.return_range[0])


def test_other_symbols_show_the_same_game_and_reach_the_rules():
    plain, other = Sokoban(), Sokoban(symbols=DIFFERENT_SYMBOLS)
    translate = str.maketrans({SYMBOLS[name]: DIFFERENT_SYMBOLS[name] for name in SYMBOLS})
    for seed in range(20):
        assert plain.reset(seed=seed)[0].translate(translate) == other.reset(seed=seed)[0]
        for action in solve_sokoban(plain) or []:
            assert plain.step(action)[0].translate(translate) == other.step(action)[0]
    for name, symbol in DIFFERENT_SYMBOLS.items():
        assert f"{symbol} {name.replace('_', ' ')}" in other.rules
    assert "√" not in other.rules


def test_coordinates_follow_player_and_boxes():
    env = Sokoban(size=(5, 6), coordinates=True)
    board, _ = env.reset(options={"board": CORRIDOR})
    assert board == f"{CORRIDOR}\nPlayer (1,1). Boxes (1,2). Targets (1,4)."
    assert env.step("Right")[0].endswith(
        "#_PXO#\n######\n######\n######\nPlayer (1,2). Boxes (1,3). Targets (1,4)."
    )
    assert "(0,0) is the upper left corner" in env.rules


def test_a_room_belongs_to_one_split_however_it_is_shown():
    plain = Sokoban()
    others = [Sokoban(symbols=DIFFERENT_SYMBOLS), Sokoban(coordinates=True)]
    splits = set()
    for seed in range(30):
        board, _ = plain.reset(seed=seed)
        splits.add(plain.declared_split())
        assert plain.declared_split() is split_of(board)
        for other in others:
            other.reset(seed=seed)
            assert other.declared_split() is plain.declared_split()
            other.step("Up")
            assert other.declared_split() is plain.declared_split()
    assert splits == set(Split)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (4, 6)}, r"size is \(4, 6\), allowed: two whole numbers 5 to 20"),
        ({"num_boxes": 0}, "num_boxes is 0, allowed in 6x6: 1 to 2"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"min_optimal": 5, "max_optimal": 4}, "min_optimal is 5 and max_optimal 4"),
        ({"lengths": "gauss"}, "lengths is 'gauss', allowed: uniform, ragen"),
        ({"lengths": "ragen", "size": (7, 7)}, r"6x6 with 1, 8x8 with 2 box.*not for 7x7 with 1"),
        (
            {"lengths": "ragen", "min_optimal": 12, "max_optimal": 20},
            "needs 12 to 20 moves, they need 1 to 11",
        ),
        ({"symbols": {"wal": "#"}}, "unknown symbol name 'wal', allowed: wall, floor"),
        ({"symbols": {"wall": "##"}}, "symbol wall is '##'"),
        ({"symbols": {"wall": "_"}}, "must all differ"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sokoban(**arguments)


@pytest.mark.parametrize(
    "row", ["#PX__#", "#__XO#", "#PPXO#", "#PX_O_", "#P√__#", "#PX?O#", "#PXXO#", "#PX_O#\n######"]
)
def test_bad_boards_are_refused(row):
    with pytest.raises(ValueError, match="Sokoban: board"):
        Sokoban(size=(5, 6)).reset(options={"board": CORRIDOR.replace("#PX_O#", row)})

"""Sokoban against recorded episodes, its room generator and its symbols."""

from __future__ import annotations

import pytest

from starpo.environments.sokoban import Sokoban
from starpo.environments.sokoban_room import DIFFERENT_SYMBOLS, SYMBOLS, Room
from starpo.environments.sokoban_solver import solve_sokoban

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (4, 6)}, r"size is \(4, 6\), allowed: two whole numbers 5 to 20"),
        ({"num_boxes": 0}, "num_boxes is 0, allowed in 6x6: 1 to 2"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"min_optimal": 5, "max_optimal": 4}, "min_optimal is 5 and max_optimal 4"),
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

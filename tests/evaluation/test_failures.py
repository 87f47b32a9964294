"""One label per failed trajectory, each on an episode made to fail that way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import Dice, FixedLake, FixedRoom, episode, luck_that, play, read

from starpo.environments.bandit import LOST_DRAW, WRONG_ARM
from starpo.environments.frozen_lake import HOLE_AFTER_SLIP, HOLE_BY_PLAN, HOLE_BY_SLIP
from starpo.environments.records import Failure
from starpo.environments.registry import make
from starpo.environments.sokoban import DEADLOCK
from starpo.evaluation.diagnosis import diagnose
from starpo.evaluation.failures import LABELS, Label, failure_of, labels_of
from starpo.evaluation.glossary import DIAGNOSIS, own_failures
from starpo.evaluation.replay import replay

OPEN = "P___\n____\n____\n___G"


def label(env, turns, **arguments) -> Failure | None:
    played = episode(env, turns, **arguments)
    replayed = replay(env, played)
    assert replayed.faithful
    return failure_of(env, played, replayed)


def test_a_hole_that_the_action_chose() -> None:
    env = FixedLake("P_O\n___\n__G", slippery=False)
    assert label(env, [["Down", "Up"], ["Right", "Right"]]) == Failure(HOLE_BY_PLAN, 1)


def test_a_hole_that_a_slip_chose() -> None:
    env = FixedLake("P_\nOG")
    seed = luck_that(-1)  # Right becomes Down
    assert label(env, [["Right"]], dynamics_seed=seed) == Failure(HOLE_BY_SLIP, 0, unlucky=True)


class TestAHoleAfterAnEarlierSlipOfTheSameTurn:
    env = FixedLake("P__\n_O_\n__G")
    seed = luck_that(1, 0, 0)  # the first Right becomes Up and stays in place

    def test_is_not_the_plans_where_the_plan_meets_none(self) -> None:
        failure = label(self.env, [["Right", "Right", "Down"]], dynamics_seed=self.seed)
        assert failure == Failure(HOLE_AFTER_SLIP, 0, unlucky=True)

    def test_is_the_plans_once_the_policy_has_seen_where_it_is(self) -> None:
        failure = label(self.env, [["Right"], ["Right", "Down"]], dynamics_seed=self.seed)
        assert failure == Failure(HOLE_BY_PLAN, 1)

    def test_is_the_plans_where_it_meets_the_hole_anyway(self) -> None:
        seed = luck_that(0, -1, 0)  # Up becomes Right: (0,2) instead of staying at (0,1)
        env = FixedLake("P__\n_OO\n__G")
        assert label(env, [["Right", "Up", "Down"]], dynamics_seed=seed) == Failure(HOLE_BY_PLAN, 0)


def test_a_deadlock_names_the_turn_of_the_push_that_sealed_it() -> None:
    env = FixedRoom("######\n#____#\n#_XP_#\n#__O_#\n#____#\n######")
    pushed = [["Right"], ["Left", "Left", "Left"], ["Right"]]
    assert label(env, pushed) == Failure(DEADLOCK, 1)


def test_the_wrong_arm_and_the_lost_draw_of_a_bandit() -> None:
    env = make("bandit")
    env.reset(seed=0)
    best = env.best_arm
    other = next(name for name in env.action_names if name != best)
    assert label(env, [[other]]) == Failure(WRONG_ARM, 0)
    outcomes = {label(env, [[best]], dynamics_seed=seed) for seed in range(30)}
    assert outcomes == {None, Failure(LOST_DRAW, 0)}


def test_an_exception_of_the_environment_comes_before_all_else() -> None:
    env = FixedLake("PO\n_G", slippery=False)
    failure = label(env, [["Down"], []], stop="environment_error", error="ValueError: broken")
    assert failure == Failure(Label.ENVIRONMENT_ERROR, 1)


def test_another_environments_own_end() -> None:
    seed = next(
        seed for seed in range(100) if not read(play(Dice(), [["Roll"] * 3], dynamics_seed=seed)).success[0]
    )
    assert label(Dice(), [["Roll", "Roll"], ["Roll"]], dynamics_seed=seed) == Failure(Label.ENDED, 1)


def test_turns_without_an_answer_are_the_format_or_the_token_limit() -> None:
    env = FixedLake(OPEN, slippery=False)
    assert label(env, [["Down"], [], []]) == Failure(Label.FORMAT, 1)
    assert label(env, [["Down"], []]) == Failure(Label.FORMAT, 1), "half of the turns are enough"
    assert label(env, [["Down"], [], []], cut_off=[1, 2]) == Failure(Label.CUT_OFF, 1)
    assert label(env, [["Down"], [], []], cut_off=[1]) == Failure(Label.FORMAT, 1)
    assert label(env, [["Down"], [], ["Down"]], stop="turn_limit") == Failure(Label.TURN_LIMIT, 2)


def test_going_back_and_forth_is_a_loop() -> None:
    env = FixedLake(OPEN, slippery=False)
    assert label(env, [["Right"], ["Left", "Right"], ["Down"]]) == Failure(Label.LOOP, 1)
    assert label(env, [["Right"], ["Left"], ["Down"]]).label is Label.TURN_LIMIT, "one return is none"


def test_walking_into_walls_has_no_effect() -> None:
    env = FixedLake(OPEN, slippery=False)
    assert label(env, [["Right", "Up"], ["Up", "Up"]]) == Failure(Label.NO_EFFECT, 0)
    assert label(env, [["Right", "Up"], ["Up", "Down"]]).label is Label.TURN_LIMIT, "half is not most"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("turn_limit", Label.TURN_LIMIT),
        ("action_limit", Label.ACTION_LIMIT),
        ("length", Label.TOKEN_LIMIT),
    ],
)
def test_what_is_left_is_a_limit(stop: str, expected: Label) -> None:
    env = FixedLake(OPEN, slippery=False)
    assert label(env, [["Right"], ["Down"]], stop=stop) == Failure(expected, 1)


def test_the_environments_own_step_limit() -> None:
    env = FixedRoom("######\n#____#\n#_XP_#\n#__O_#\n#____#\n######", max_steps=2)
    assert label(env, [["Right"], ["Down"]]) == Failure(Label.ENVIRONMENT_LIMIT, 1)


def test_a_replay_that_goes_otherwise_is_noticed_and_only_what_is_stored_counts(caplog) -> None:
    env = FixedLake("PO\n_G", slippery=False)
    rows = play(env, [["Right"]])
    rows[-1]["next_observation"] = "something else"
    trajectories = read(rows)
    result = diagnose(env, trajectories, seed=0)
    assert result.labels[0]["label"] == "ended"
    assert result.metrics["luck_method"] == "unknown"
    assert "replays of the suite suite went otherwise" in caplog.text


NAMES = ("frozen_lake", "frozen_lake_no_slip", "sokoban", "bandit")


@given(
    name=st.sampled_from(NAMES),
    lengths=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
    choices=st.randoms(use_true_random=False),
)
def test_every_failure_has_exactly_one_label_of_its_environment(name, lengths, seed, choices) -> None:
    env = make(name)
    played = []
    for group, turns in enumerate(lengths):
        env.reset(seed=seed + group)
        names = env.action_names
        actions = [[choices.choice(names) for _ in range(count)] for count in turns]
        played.append(play(env, actions, group=group, instance_seed=seed + group, dynamics_seed=seed))
    trajectories = read(*played)
    result = diagnose(env, trajectories, seed=1)
    labelled = [row["group"] for row in result.labels]
    assert len(labelled) == len(set(labelled))
    failed = trajectories.group[~trajectories.success].tolist()
    assert [row["group"] for row in result.labels if row["label"] != "lost_draw"] == failed
    shares = {key: value for key, value in result.metrics.items() if key.startswith("failures.")}
    assert shares.keys() == {f"failures.{each}" for each in labels_of(env)}
    assert sum(shares.values()) - shares.get("failures.lost_draw", 0) == pytest.approx(
        len(failed) / len(trajectories)
    )
    assert all(0 <= row["turn"] < len(lengths[row["group"]]) for row in result.labels)
    for key in result.metrics:
        assert key.removesuffix("_low").removesuffix("_high") in (DIAGNOSIS | own_failures())


def test_every_label_has_a_condition() -> None:
    assert LABELS.keys() == set(Label)

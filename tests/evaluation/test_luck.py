"""What the same actions are worth under other luck."""

from __future__ import annotations

import numpy as np
import pytest
from played import Dice, FixedLake, episode, luck_that, play, read

from starpo.environments.registry import make
from starpo.evaluation.diagnosis import diagnose
from starpo.evaluation.luck import REPLAYS, chance_of_plan


def replayed_share(env, actions, tries: int) -> float:
    """Share of ``tries`` fresh dynamics seeds under which the actions solve the task."""
    wins = 0
    for seed in range(tries):
        env.reset(seed=0, options={"dynamics_seed": 10_000 + seed})
        for action in actions:
            *_, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
        wins += info["success"]
    return wins / tries


def test_the_exact_chance_on_ice_is_what_many_replays_show() -> None:
    env = FixedLake("P__\n_O_\n__G")
    played = episode(env, [["Right", "Right"], ["Down", "Down"]], dynamics_seed=luck_that(0, 0, 0, 0))
    assert played.success
    chance = chance_of_plan(env, played, suite="s", seed=0)
    assert chance == pytest.approx(replayed_share(env, played.plan, 4000), abs=0.02)
    assert 1 / 81 < chance < 0.5, "other slips than none at all reach the goal too"


def test_the_share_of_lucky_wins_is_the_mean_chance_to_fail() -> None:
    env = FixedLake("P_\n_G")
    straight = luck_that(0, 0)
    wins = [
        play(env, [["Right", "Down"]], group=0, dynamics_seed=straight),
        play(env, [["Right", "Down"]], group=1, dynamics_seed=luck_that(-1, 1)),
    ]
    result = diagnose(env, read(*wins), seed=0)
    # Right leaves the corner for a cell beside the goal with 2/3, and from there Down arrives with 1/3.
    chance = replayed_share(env, ("Right", "Down"), 6000)
    assert result.metrics["luck_method"] == "exact"
    assert result.metrics["luck_failed_share"] == pytest.approx(1 - chance, abs=0.02)
    assert result.metrics["luck_failed_share"] == pytest.approx(7 / 9)
    assert not result.labels


def test_a_fall_by_slip_says_what_its_plan_was_worth_with_the_rest_of_the_answer() -> None:
    env = FixedLake("P_\nOG")
    rows = play(env, [["Right", "Down"]], dynamics_seed=luck_that(-1))
    assert rows[0]["executed"] == ["Right"]
    assert rows[0]["actions"] == ["Right", "Down"]
    result = diagnose(env, read(rows), seed=0)
    # Right: 1/3 ahead, 1/3 stays, 1/3 falls. Ahead, Down reaches the goal with 1/3 (Right stays, Left goes back);
    # from the start Down reaches the goal never.
    assert result.labels[0]["label"] == "hole_by_slip"
    assert result.labels[0]["chance"] == pytest.approx(1 / 9)
    assert result.metrics["slip_plan_success"] == pytest.approx(1 / 9)


@pytest.mark.parametrize("name", ["frozen_lake_no_slip", "sokoban"])
def test_without_luck_the_share_is_exactly_zero_and_named_so(name: str) -> None:
    from starpo.environments.solvers import optimal_actions

    env = make(name)
    env.reset(seed=3)
    result = diagnose(env, read(play(env, [optimal_actions(env)], instance_seed=3)), seed=0)
    assert result.metrics["luck_method"] == "none"
    assert result.metrics["luck_failed_share"] == 0
    assert "luck_failed_share_low" not in result.metrics


def test_an_environment_without_a_closed_form_is_replayed_under_seeds_of_its_own() -> None:
    env = Dice()
    won = [seed for seed in range(400) if read(play(env, [["Roll"]], dynamics_seed=seed)).success[0]]
    rows = [
        play(env, [["Roll"]], group=number, instance_seed=number, dynamics_seed=seed)
        for number, seed in enumerate(won)
    ]
    result = diagnose(env, read(*rows), seed=7)
    assert result.metrics["luck_method"] == "replay"
    assert result.metrics["luck_failed_share"] == pytest.approx(
        5 / 6, abs=3 * np.sqrt(5 / 36 / REPLAYS / len(won))
    )
    assert result.metrics == diagnose(env, read(*rows), seed=7).metrics
    assert result.metrics != diagnose(env, read(*rows), seed=8).metrics


def test_prompts_and_samples_have_replays_of_their_own() -> None:
    def chances(**names: list[int]) -> set[float]:
        (name, numbers), env = next(iter(names.items())), Dice()
        played = [episode(env, [["Roll"]], **{name: number}) for number in numbers]
        return {chance_of_plan(env, each, suite="s", seed=0) for each in played}

    assert len(chances(member=list(range(12)))) > 1
    assert len(chances(group=list(range(12)))) > 1
    assert len(chances(member=[3, 3])) == 1


def test_a_paid_bandit_owes_its_pay_to_luck_as_often_as_the_arm_does_not_pay() -> None:
    env = make("bandit", high_probability=0.3)
    env.reset(seed=0)
    rows = [play(env, [[env.best_arm]], group=seed, dynamics_seed=seed) for seed in range(40)]
    result = diagnose(env, read(*rows), seed=0)
    assert 0 < result.metrics["failures.lost_draw"] < 1
    assert result.metrics["luck_failed_share"] == pytest.approx(0.7)

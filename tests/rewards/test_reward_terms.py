"""Reward terms per turn, and their sum."""

from __future__ import annotations

import numpy as np
import pytest

from starpo.errors import UserError
from starpo.rewards.terms import TERMS, Turns, overlong, turn_penalty
from starpo.rewards.total import bind_terms, score, trajectory_return, turn_rewards


def turns(**changes: object) -> Turns:
    """Three turns: fine, badly formed, cut off and solved."""
    fields = {
        "env_reward": np.array([-0.1, 0.0, 10.9]),
        "format_valid": np.array([True, False, True]),
        "response_tokens": np.array([300, 350, 400]),
        "stop_reason": ("stop", "stop", "length"),
        "success": True,
    }
    return Turns(**(fields | changes))


def own_term(judged: Turns, *, factor: float = 1.0) -> np.ndarray:
    return factor * np.arange(len(judged), dtype=np.float64)


def nan_term(judged: Turns) -> np.ndarray:
    return np.array([0.0, np.nan, 0.0])


def scalar_term(judged: Turns) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("environment", {}, [-0.1, 0, 10.9]),
        ("environment", {"scale": 0.1}, [-0.01, 0, 1.09]),
        ("format_penalty", {"penalty": 0.1}, [0, -0.1, 0]),
        ("truncation_penalty", {"penalty": 0.2}, [0, 0, -0.2]),
        ("turn_penalty", {"penalty": 0.01}, [-0.01, -0.01, -0.01]),
        ("overlong", {"max_tokens": 400, "buffer": 100, "penalty": 0.5}, [0, -0.25, -0.5]),
        ("success_bonus", {"bonus": 2.0}, [0, 0, 2]),
        ("test_reward_terms:own_term", {"factor": 3.0}, [0, 3, 6]),
    ],
)
def test_each_term_gives_one_value_per_turn(name, parameters, expected):
    scored = score(turns(), bind_terms({name: parameters}))
    assert scored[name].tolist() == pytest.approx(expected)


def test_terms_add_up_per_turn_and_per_trajectory():
    scored = score(
        turns(), bind_terms({"environment": {}, "format_penalty": {"penalty": 0.1}, "success_bonus": {}})
    )
    assert list(scored) == ["environment", "format_penalty", "success_bonus"]
    assert turn_rewards(scored, 3).tolist() == pytest.approx([-0.1, -0.1, 11.9])
    assert trajectory_return(scored) == pytest.approx(11.7)


def test_a_failed_trajectory_gets_no_bonus():
    assert score(turns(success=False), bind_terms({"success_bonus": {}}))["success_bonus"].tolist() == [
        0,
        0,
        0,
    ]


def test_a_trajectory_without_turns_is_worth_nothing():
    empty = turns(
        env_reward=np.array([]),
        format_valid=np.array([], dtype=bool),
        response_tokens=np.array([], dtype=int),
        stop_reason=(),
    )
    names = [name for name in TERMS if name != "overlong"]
    scored = score(empty, bind_terms({name: {} for name in names}))
    assert all(reward.shape == (0,) for reward in scored.values())
    assert trajectory_return(scored) == 0.0
    assert turn_rewards({}, 2).tolist() == [0, 0]


def test_unknown_terms_and_parameters_are_refused_with_the_known_ones():
    with pytest.raises(UserError, match="unknown reward term 'format'; known: environment, format_penalty"):
        bind_terms({"format": {}})
    with pytest.raises(UserError, match="'format_penalty' has no parameter 'size'; it takes: penalty"):
        bind_terms({"format_penalty": {"size": 1.0}})


def test_bad_values_are_refused_with_the_term_and_the_turn():
    with pytest.raises(ValueError, match=r"nan_term' gave nan for turn 1"):
        score(turns(), bind_terms({"test_reward_terms:nan_term": {}}))
    with pytest.raises(ValueError, match=r"one value per turn \(3,\), got \(\)"):
        score(turns(), bind_terms({"test_reward_terms:scalar_term": {}}))
    with pytest.raises(ValueError, match="one entry per turn"):
        turns(stop_reason=("stop",))
    with pytest.raises(ValueError, match="must not be negative"):
        turn_penalty(turns(), penalty=-1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        overlong(turns(), max_tokens=400, buffer=100, penalty=-1.0)

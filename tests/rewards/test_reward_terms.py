"""Reward terms per turn, and their sum."""

from __future__ import annotations

import re
import sys
import types

import pytest
import yaml
from builders import PROJECT
from hypothesis import given
from hypothesis import strategies as st
from judged import scored, trajectory, turn, values

from starpo.rewards.bind import bind_terms
from starpo.rewards.registry import TERMS
from starpo.rewards.total import score, trajectory_return, turn_rewards
from starpo.rewards.trajectory import Missing, Trajectory

#: Fine, badly formed, cut off and solved.
THREE = trajectory(
    turn(reward=-0.1, response_ids=[0] * 300, actions=("Up", "Down"), executed=("Up", "Down"), effective=1),
    turn(reward=0.0, response_ids=[0] * 350, format_valid=False),
    turn(
        reward=10.9, response_ids=[0] * 400, stop_reason="length", actions=("Up",), executed=(), effective=0
    ),
    success=True,
)


def own_term(judged: Trajectory, group: object, *, factor: float = 1.0) -> list[float]:
    return [factor * number for number in range(len(judged))]


def shorter_than_others(judged: Trajectory, group: list[Trajectory]) -> list[float]:
    return [float(all(len(judged) < len(other) for other in group))] * len(judged)


def unsure(judged: Trajectory, group: object) -> list[float | Missing]:
    return [1.0, Missing("out of ink"), 1.0]


class Counting:
    """Set up once: gives each trajectory the number of those before it."""

    def __init__(self, *, start: int = 0) -> None:
        self.count = start - 1

    def __call__(self, judged: Trajectory, group: object) -> list[float]:
        self.count += 1
        return [float(self.count)] * len(judged)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("environment", {}, [-0.1, 0, 10.9]),
        ("environment", {"scale": 0.1}, [-0.01, 0, 1.09]),
        ("environment", {"weight": -2}, [0.2, 0, -21.8]),
        ("format_penalty", {"penalty": 0.1}, [0, -0.1, 0]),
        ("truncation_penalty", {"penalty": 0.2}, [0, 0, -0.2]),
        ("turn_penalty", {"penalty": 0.01}, [-0.01, -0.01, -0.01]),
        # Half of the first turn's actions moved nothing; the second has none; the third's came after the end.
        ("action_validity", {"penalty": 0.2}, [-0.1, -0.2, 0]),
        ("length", {"at_least": 310, "at_most": 390, "penalty": 0.01}, [-0.1, 0, -0.1]),
        ("length", {}, [0, 0, 0]),
        ("overlong", {"max_tokens": 400, "buffer": 100, "penalty": 0.5}, [0, -0.25, -0.5]),
        ("success_bonus", {"bonus": 2.0}, [0, 0, 2]),
        ("test_reward_terms:own_term", {"factor": 3.0}, [0, 3, 6]),
        ("test_reward_terms:own_term", {"factor": 3, "weight": 0.5}, [0, 1.5, 3]),
        ("test_reward_terms:Counting", {"start": 5}, [5, 5, 5]),
    ],
)
def test_each_term_gives_one_value_per_turn(name, parameters, expected):
    assert values(name, THREE, **parameters) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"words": 1}, [-1 / 3, -1]),
        ({"words": 1, "where": "within"}, [-1 / 3, 0]),
        ({"words": 1, "where": "across"}, [0, -1]),
        ({"words": 2}, [0, -1]),
        ({"words": 3}, [0, 0]),
        ({"words": 1, "of": "response"}, [0, 0]),
    ],
)
def test_what_was_said_before_is_a_repetition_within_a_turn_and_across_turns(parameters, expected):
    judged = trajectory(turn(thought="Go up GO"), turn(thought="up go"))
    assert values("repetition", judged, **{"penalty": 1.0} | parameters) == pytest.approx(expected)


def test_terms_add_up_per_turn_and_per_trajectory():
    found = scored({"environment": {}, "format_penalty": {"penalty": 0.1}, "success_bonus": {}}, THREE)
    assert list(found) == ["environment", "format_penalty", "success_bonus"]
    assert turn_rewards(found, 3).tolist() == pytest.approx([-0.1, -0.1, 11.9])
    assert trajectory_return(found) == pytest.approx(11.7)


def test_a_term_sees_the_other_members_of_the_group():
    one, two = trajectory(turn()), trajectory(turn(), turn())
    name = "test_reward_terms:shorter_than_others"
    assert (values(name, one, two), values(name, two, one)) == ([1.0], [0.0, 0.0])


def test_a_turn_that_cannot_be_judged_counts_nothing_and_says_why():
    found = score(THREE, (), bind_terms({"test_reward_terms:unsure": {"weight": 2}}))
    assert found.values["test_reward_terms:unsure"].tolist() == [2, 0, 2]
    assert found.missing == {"test_reward_terms:unsure": {1: "out of ink"}}


def test_a_term_that_is_switched_off_is_not_asked():
    assert list(bind_terms({"environment": {}, "overlong": None})) == ["environment"]


def test_the_page_s_own_term_works(monkeypatch):
    page = (PROJECT / "docs/rewards.md").read_text()
    code, (conf,) = (
        re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0],
        re.findall(r"^    (my_.*)$", page, re.M),
    )
    module = types.ModuleType("my_rewards")
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    ((name, parameters),) = yaml.safe_load(conf).items()
    judged = trajectory(turn(thought="The Goal is down."), turn(thought="Hm."))
    assert values(name, judged, **parameters) == pytest.approx([0.1, 0])


def test_a_failed_trajectory_gets_no_bonus():
    assert values("success_bonus", trajectory(turn(), turn())) == [0, 0]


def test_a_trajectory_without_turns_is_worth_nothing():
    names = [name for name in TERMS if name not in {"overlong", "judge"}]
    found = scored({name: {} for name in names}, trajectory())
    assert all(reward.shape == (0,) for reward in found.values())
    assert trajectory_return(found) == 0.0
    assert turn_rewards({}, 2).tolist() == [0, 0]


@given(
    st.lists(
        st.builds(
            turn,
            reward=st.floats(-100, 100),
            format_valid=st.booleans(),
            thought=st.text("go up (1,2) left: ice", max_size=40),
            response_ids=st.lists(st.just(0), max_size=20),
        ),
        max_size=6,
    ),
    st.dictionaries(
        st.sampled_from(["environment", "format_penalty", "repetition", "length", "grounding", "progress"]),
        st.fixed_dictionaries({"weight": st.floats(-10, 10)}),
        min_size=1,
    ),
)
def test_the_reward_of_a_turn_is_the_sum_of_its_terms_whatever_they_weigh(turns, terms):
    judged = trajectory(*turns)
    found = scored(terms, judged)
    plain = scored({name: {} for name in terms}, judged)
    for number, reward in enumerate(turn_rewards(found, len(turns))):
        by_hand = sum(terms[name]["weight"] * plain[name][number] for name in terms)
        assert reward == pytest.approx(by_hand, abs=1e-9)
    assert trajectory_return(found) == pytest.approx(turn_rewards(found, len(turns)).sum(), abs=1e-9)

"""What a thought says about the state, and whether the answer does what it says."""

from __future__ import annotations

import time

import pytest
from judged import KNOWN, OPEN, trajectory, turn, values

from starpo.environments.registry import make
from starpo.rewards.claims import claims
from starpo.rewards.thoughts import plan_of

ROOM = "######\n#P___#\n#_X__#\n#__O_#\n#____#\n######"
ARMS = "Arms: Dragon, Anchor"


def said(text: str, observation: str = OPEN, environment: str = "frozen_lake") -> list[tuple[str, bool]]:
    state = KNOWN.facts(environment, observation)
    assert state is not None
    return [(text[claim.start : claim.end], claim.true) for claim in claims(text, state)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Player (0,0). Goal (2,2).", [True, True]),
        ("I am at (0, 0) and the goal is at (2, 1)", [True, False]),
        ("holes are at (0,2) and (2,1)", [True]),
        ("holes are at (0,2), (1,1)", [False]),
        ("no hole at (1,1); not a hole at (2,1)", [True, False]),
        ("Left: edge, Down: ice, Right: hole, Up: edge", [True, True, False, True]),
        ("down is ice. up is not a hole. Right is the goal", [True, True, False]),
        ("the goal is below", [True]),
        ("goal down and right", [True]),
        ("The goal is up and right", [False]),
        ("there is a hole to the right, but no hole on the left", [True, True]),
        ("THE GOAL IS DOWN", [True]),
        ("no edge above", [False]),
        ("I think, therefore I go Right", []),
        ("", []),
        ("goal", []),
    ],
)
def test_positions_neighbours_and_directions_are_compared_with_the_lake(text, expected):
    assert [true for _, true in said(text)] == expected, said(text)


def test_boxes_targets_and_walls_are_compared_with_the_room():
    text = "Player (1,1). Box at (2,2), target at (3,3). Left: wall, Right: box. The box is down. The target is up."
    assert [true for _, true in said(text, ROOM, "sokoban")] == [True, True, True, True, False, True, False]


def test_an_arm_that_is_not_offered_is_a_false_claim():
    text = "Dragon is wild, Anchor steady, Tortoise slow."
    assert said(text, ARMS, "bandit") == [("Dragon", True), ("Anchor", True), ("Tortoise", False)]


@pytest.mark.parametrize(
    "piece", ["goal ", "goal is to the ", "(1,1) ", "no ", "\u0131 left: \u0130ce ", "Player (0,0), "]
)
def test_reading_claims_takes_linear_time(piece):
    state = KNOWN.facts("frozen_lake", OPEN)
    texts = [piece * count + " " * 10 * count for count in (500, 8000)]

    def seconds(text: str) -> float:
        began = time.process_time()
        claims(text, state)
        return time.process_time() - began

    assert min(seconds(texts[1]) for _ in range(2)) < 16 * 8 * max(seconds(texts[0]), 0.002)


def test_grounding_weighs_true_claims_against_false_ones():
    judged = trajectory(
        turn(thought="Left: edge, Right: hole"),
        turn(thought="The goal is down."),
        turn(thought="The goal is up."),
        turn(thought="Well."),
        turn(thought="The goal is up.", observation="not a lake"),
        turn(thought="The goal is up.", environment="blind"),
    )
    assert values("grounding", judged, bonus=0.4, penalty=0.2) == pytest.approx([0.1, 0.4, -0.2, 0, 0, 0])


@pytest.mark.parametrize(
    ("thought", "plan"),
    [
        ("Plan: Down, Down, then Right", ["down", "down", "right"]),
        ("Left is a hole, so Down and Right", ["down", "right"]),
        ("Left: edge, Down: ice. Go right", ["right"]),
        ("Up would fall; down || right", ["down", "right"]),
        ("The goal is right and down", []),
        ("Downright odd", []),
        ("Right, not Up", ["right"]),
        ("", []),
    ],
)
def test_a_plan_is_the_last_row_of_actions_that_is_no_claim(thought, plan):
    assert plan_of(turn(thought=thought)) == plan


def test_agreement_is_the_share_of_the_answer_that_the_plan_has_at_the_same_place():
    judged = trajectory(
        turn(thought="Down, Right", actions=("Down", "Right")),
        turn(thought="Down, Right", actions=("Down",)),
        turn(thought="Down", actions=("Down", "Right")),
        turn(thought="Down, Right", actions=("Right", "Down")),
        turn(thought="Down, Right", actions=()),
        turn(thought="Hm", actions=("Right",)),
        turn(
            thought="Dragon rather than Anchor", actions=("Dragon",), observation=ARMS, environment="bandit"
        ),
        turn(thought="sing", actions=("Sing",), environment="blind"),
    )
    expected = [0.4, 0.4, 0.1, -0.2, 0, 0, 0.4, 0]
    assert values("plan_agreement", judged, bonus=0.4, penalty=0.2) == pytest.approx(expected)
    named = values("plan_agreement", trajectory(judged.turns[-1]), bonus=0.4, actions=["Sing"])
    assert named == pytest.approx([0.4])


def test_what_an_environment_says_of_its_own_start_is_true_of_it():
    env = make("frozen_lake_ragen_v2", surroundings=True)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        found = claims(observation, env.facts(observation))
        assert len(found) == 6
        assert all(claim.true for claim in found)

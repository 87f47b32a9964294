"""Turn by turn against recordings of the authors' own bookkeeping (their environment and context managers).

Deliberate differences, each shown by a test below:

==============================  =====================================  ========================================
theirs                          ours                                   because
==============================  =====================================  ========================================
``terminated`` at any end       ``terminated`` only by the task        a limit must not look like an end of the
                                                                       task: values beyond it are not 0
``truncated`` = not a success   ``truncated`` only by a limit          a fall into a hole is no limit
effectiveness of a turn = that  number of effective actions            the others happened, too
of its last action
members of a group share luck   each member has its own                equal actions gave equal outcomes, so
                                                                       luck added no spread within a group
trained: reply, and role        trained: the sampled tokens and        the policy did not choose the others
header, forced ``<think>``,     nothing else
line break, next turn's start
==============================  =====================================  ========================================
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import ScriptedEngine, agent, plan
from recorded_starts import recorded_luck

from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.environments.splits import Instance
from starpo.evaluation.intervals import pass_at_k
from starpo.learning.batching import sequences_of
from starpo.rewards import trajectory as judged
from starpo.rewards.terms import format_penalty
from starpo.rollout.episodes import play
from starpo.store.policies import load_tokenizer
from starpo.store.trajectory_table import trajectories_to_table

NAMES = {
    "SimpleSokoban": {1: "Up", 2: "Down", 3: "Left", 4: "Right"},
    "LargerSokoban": {1: "Up", 2: "Down", 3: "Left", 4: "Right"},
    "FrozenLake": {1: "Left", 2: "Down", 3: "Right", 4: "Up"},
}
BOXES = {"SimpleSokoban": 1, "LargerSokoban": 2}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Up || Down <answer>"], ["<answer>", "</answer>"], vocabulary=300, directory=folder)
    return ChatTemplate.of(load_tokenizer(folder))


def replayed(template: ChatTemplate, run: dict[str, Any], recorded: dict[str, Any]) -> Trajectory:
    """Our trajectory from the recorded start with the recorded answers."""
    tag, seed = recorded["tag"], recorded["seed"]
    if tag in BOXES:
        environment, arguments = "Room", {"board": recorded["first_state"], "num_boxes": BOXES[tag]}
    elif tag == "FrozenLake":
        environment, arguments = "Lake", {"board": recorded["first_state"], "luck": seed}
    else:
        environment, arguments = "TwoArms", {"luck": seed}
    answers = [f"<think></think><answer>{' || '.join(t['given'])}</answer>" for t in recorded["turns"]]
    drawn = plan(
        environment=f"recorded_starts:{environment}",
        arguments=arguments,
        groups=1,
        group_size=1,
        instances=(Instance(seed=0, attempt=0, observation=""),),
    )
    harness = agent(
        max_turns=len(answers),
        max_actions_per_turn=run["max_actions_per_turn"],
        max_actions=recorded["actions_left0"],
        max_tokens_per_turn=300,
        max_tokens_per_trajectory=20_000,
    )
    (trajectory,) = play(ScriptedEngine.saying(template, *answers), drawn, harness, template)
    return trajectory


def executed_names(recorded: dict[str, Any], turn: dict[str, Any]) -> list[str]:
    if (
        recorded["tag"] == "Bandit"
    ):  # ids follow the arms' order, which is the seed's; the answer has the name
        return [each.capitalize() for each in turn["given"]][: len(turn["executed"])]
    return [NAMES[recorded["tag"]][each] for each in turn["executed"]]


def test_recorded_turns_replay_to_the_same_actions_rewards_states_and_ends(golden, template):
    turns = 0
    for run in golden("es_manager.json")["runs"]:
        for recorded in run["trajectories"]:
            trajectory = replayed(template, run, recorded)
            where = f"{recorded['tag']}, seed {recorded['seed']}, member {recorded['env_id']}"
            assert len(trajectory.turns) == len(recorded["turns"]), where
            left = recorded["actions_left0"]
            for ours, theirs in zip(trajectory.turns, recorded["turns"], strict=True):
                turns += 1
                left -= len(ours.executed)
                assert list(ours.executed) == executed_names(recorded, theirs), where
                assert ours.reward == pytest.approx(theirs["reward"]), where
                assert left == theirs["actions_left"], where
                if theirs["state"] != "<bandit prompt>":
                    assert ours.next_observation == theirs["state"], where
                ended = trajectory.stop_reason is not StopReason.TURN_LIMIT and ours is trajectory.turns[-1]
                assert theirs["terminated"] == ended, where
                assert theirs["truncated"] == (ended and not ours.success), where
                assert theirs["still_active"] == (not ended), where
                assert bool(theirs["last_success"]) == ours.success, where
                assert bool(theirs["last_effective"]) <= bool(ours.effective), where
            penalties = format_penalty(
                judged.Trajectory(
                    turns=tuple(judged.Turn(format_valid=turn.format_valid) for turn in trajectory.turns)
                ),
                (),
                penalty=0.1,
            )
            assert np.cumsum(penalties) == pytest.approx(
                [turn["penalty_so_far"] for turn in recorded["turns"]]
            ), where
            metrics = {key.split("/")[1]: value for key, value in recorded["metrics"].items()}
            assert metrics["success"] == any(turn.success for turn in trajectory.turns), where
            assert metrics["num_actions"] == sum(len(turn.executed) for turn in trajectory.turns), where
    assert turns > 200


def test_an_end_by_the_task_is_terminated_and_an_end_by_a_limit_is_truncated(golden, template):
    kinds = defaultdict(int)
    for run in golden("es_manager.json")["runs"]:
        for recorded in run["trajectories"]:
            trajectory = replayed(template, run, recorded)
            last = trajectory.turns[-1]
            limited = trajectory.stop_reason in {StopReason.ACTION_LIMIT, StopReason.TURN_LIMIT}
            assert last.truncated == limited
            assert last.terminated == (trajectory.stop_reason is StopReason.TERMINATED)
            assert last.terminated != last.truncated
            fell = "X" in last.next_observation and recorded["tag"] == "FrozenLake"
            assert not fell or last.terminated
            kinds[recorded["turns"][-1]["truncated"], last.truncated] += 1
    # Theirs calls some real ends truncated (a fall, the sure arm) and turn limits not.
    assert kinds[True, False] > 5
    assert kinds[False, True] > 5


def test_pass_at_k_is_theirs(golden, template):
    groups_seen = 0
    for run in golden("es_manager.json")["runs"]:
        k = run["group_size"]
        groups = defaultdict(list)
        for recorded in run["trajectories"]:
            groups[recorded["tag"], recorded["group_id"]].append(recorded)
        for (tag, _), members in groups.items():
            if len(members) < k:
                continue  # the recording holds a part of this group
            solved = np.array(
                [any(turn.success for turn in replayed(template, run, member).turns) for member in members]
            )
            rate = pass_at_k(solved, np.zeros(k, dtype=np.int64), k)
            assert rate.estimate == members[0]["metrics"][f"{tag}/pass@{k}"]
            groups_seen += 1
    assert groups_seen > 5


def test_members_of_a_group_have_luck_of_their_own_where_theirs_share_it(golden, template):
    shared = golden("es_manager.json")["same_group_same_actions"]
    assert shared["frozen_lake_identical_states"] and shared["bandit_identical_high_arm_reward"]
    # Their 64 groups pay as the seed says, whatever member is asked; ours differ within nearly every group.
    drawn = plan(environment="bandit", arguments={}, groups=16, group_size=16)
    settings = agent(max_turns=1, max_tokens_per_turn=300, max_tokens_per_trajectory=20_000)
    asked = ScriptedEngine.saying(template, "<think></think><answer>nothing</answer>")
    arms = play(asked, drawn, settings, template)
    best = [_best_arm(trajectory) for trajectory in arms]
    engine = ScriptedEngine(
        lambda request: (
            [*template.content(f"<think></think><answer>{best[request]}</answer>"), template.turn_end],
            True,
        )
    )
    played = play(engine, drawn, settings, template)
    paid = defaultdict(set)
    for trajectory in played:
        paid[trajectory.address.group].add(trajectory.turns[0].reward)
        first = played[trajectory.address.group * 16]
        assert trajectory.turns[0].observation == first.turns[0].observation
    assert sum(len(each) == 2 for each in paid.values()) >= 14


def _best_arm(trajectory: Trajectory) -> str:
    from starpo.environments.bandit import HIGH_RISK_NAMES

    names = trajectory.turns[0].observation.removeprefix("Arms: ").split(", ")
    return next(name for name in names if name in HIGH_RISK_NAMES)


def test_their_luck_follows_from_the_seed_of_the_instance(golden):
    pays = golden("es_manager.json")["same_group_same_actions"]["bandit_group_rewards"]
    assert len(set(pays)) == 2
    assert recorded_luck(3, 1).random() == np.random.Generator(np.random.PCG64(3)).random(2)[1]


TRAINED_BY_THEM_BEFORE = ["assistant", "\n", "<think>"]
TRAINED_BY_THEM_AFTER = ["\n", "<|im_start|>"]


def test_the_trained_tokens_are_theirs_without_what_the_policy_did_not_sample(
    golden, template, tmp_path: Path
):
    recorded = golden("masks.json")
    case = next(each for each in recorded["cases"] if each["label"] == "default")
    for row, episode in enumerate(recorded["episodes_in"]):
        replies = [turn["llm_response"] for turn in episode["history"] if "llm_response" in turn]
        spans = _predicted_spans(case["tokens"][row], case["loss_mask"][row])
        assert len(spans) == len(replies)
        kept = []
        for number, span in enumerate(spans):
            after = TRAINED_BY_THEM_AFTER[: 1 if number == len(spans) - 1 else 2]
            assert span[:3] == TRAINED_BY_THEM_BEFORE
            assert span[-len(after) :] == after
            kept.append(span[3 : -len(after)])
        drawn = plan(environment="odd_environments:Counter", arguments={}, groups=1, group_size=1)
        harness = agent(
            prefill_think=True,
            max_turns=len(replies),
            max_tokens_per_turn=300,
            max_tokens_per_trajectory=20_000,
        )
        texts = [reply.removeprefix("<think>") for reply in replies]
        (trajectory,) = play(ScriptedEngine.saying(template, *texts), drawn, harness, template)
        table = trajectories_to_table([trajectory], policy_step=0, temperature=1.0, top_p=1.0)
        batch = sequences_of(table, {(0, 0): [0.0] * len(replies)}, {(0, 0)})
        ids = batch.token_ids[0][batch.mask[0]].tolist()
        ours = template.tokenizer.decode(ids, skip_special_tokens=False)
        assert _plain(ours) == _plain("".join(token for span in kept for token in span))


def _plain(text: str) -> str:
    """Without blanks, which their word-level tokenizer does not keep."""
    return "".join(text.split())


def _predicted_spans(tokens: list[str], mask: list[int]) -> list[list[str]]:
    """Runs of trained positions, as the tokens that they predict."""
    spans: list[list[str]] = []
    before = 0
    for (_, following), trained in zip(pairwise(tokens), mask, strict=True):
        if trained and not before:
            spans.append([])
        if trained:
            spans[-1].append(following)
        before = trained
    return spans

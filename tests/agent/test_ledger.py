"""The token ledger of a played episode: the chain is what the engine saw, the mask is what it sampled."""

from __future__ import annotations

import pytest
from builders import LAKE, ScriptedEngine, agent, plan, template_of

from starpo.agent.prompt import fixed_phrases, system_message, user_message
from starpo.agent.records import StopReason, Trajectory
from starpo.environments.registry import make
from starpo.learning.batching import sequences_of
from starpo.rollout.environments import LocalEnvironments
from starpo.rollout.episodes import begin_episodes, reading_of, run_episodes
from starpo.store.policies import Policy
from starpo.store.trajectory_table import trajectories_to_table

REPLIES = [
    "<think>look</think><answer>Up</answer>",
    "nonsense",
    "<think></think><answer>Left</answer>",
]


def played(policy: Policy) -> tuple[Trajectory, ScriptedEngine, list[list[int]]]:
    """One episode of three turns; the second reply was cut before its turn end."""
    template = template_of(policy)
    stopped = [True, False, True]
    replies = [
        [*template.content(text), *([template.turn_end] if stop else [])]
        for text, stop in zip(REPLIES, stopped, strict=True)
    ]
    engine = ScriptedEngine(lambda request: (replies[request], stopped[request]))
    stage = LocalEnvironments(reading_of(agent()))
    episodes = begin_episodes(plan(groups=1, group_size=1, seed=1), agent(), template, stage)
    (trajectory,) = run_episodes(engine, episodes, stage, temperature=1.0, top_p=1.0)
    return trajectory, engine, replies


@pytest.mark.slow
def test_the_chain_is_the_last_prompt_and_its_reply(tiny_policy: Policy) -> None:
    trajectory, engine, replies = played(tiny_policy)
    assert len(trajectory.turns) == 3
    (chain,) = trajectory.chains()
    assert chain.token_ids == [*engine.prompts[-1], *replies[-1]]


@pytest.mark.slow
def test_every_prompt_is_the_one_before_with_reply_and_new_context(tiny_policy: Policy) -> None:
    trajectory, engine, replies = played(tiny_policy)
    for number, turn in enumerate(trajectory.turns):
        assert turn.response_ids == tuple(replies[number])
        before = [*engine.prompts[number - 1], *replies[number - 1]] if number else []
        assert engine.prompts[number] == [*before, *turn.context_ids]


@pytest.mark.slow
def test_the_mask_marks_sampled_tokens_and_an_unsampled_turn_end_is_context(tiny_policy: Policy) -> None:
    trajectory, *_ = played(tiny_policy)
    turn_end = template_of(tiny_policy).turn_end
    table = trajectories_to_table([trajectory], policy_step=0, temperature=1.0, top_p=1.0)
    batch = sequences_of(table, {(0, 0): [0.0, 0.0, 0.0]}, {(0, 0)})
    # context 0 | reply 0 | context 1 | reply 1 | context 2 | reply 2
    flags = [
        flag
        for turn in trajectory.turns
        for flag in [*[False] * len(turn.context_ids), *[True] * len(turn.response_ids)]
    ]
    (chain,) = trajectory.chains()
    assert batch.token_ids[0].tolist() == chain.token_ids
    assert batch.mask[0].tolist() == chain.sampled == flags
    assert trajectory.turns[1].context_ids[0] != turn_end, "sampled by the first turn, not repeated"
    assert trajectory.turns[2].context_ids[0] == turn_end, "the second turn was cut before its end"


@pytest.mark.slow
def test_the_policy_is_told_when_its_answer_was_not_understood(tiny_policy: Policy) -> None:
    trajectory, *_ = played(tiny_policy)
    template = template_of(tiny_policy)
    second, third = (template.text(list(turn.context_ids)) for turn in trajectory.turns[1:])
    assert "no legal action" not in second
    assert "no legal action" in third
    assert trajectory.turns[1].stop_reason is StopReason.LENGTH


def test_the_prompt_holds_rules_format_state_and_budget() -> None:
    env = make(LAKE.name, **LAKE.arguments)
    system = system_message(env.rules, agent(max_actions_per_turn=4, action_separator=";"))
    assert env.rules in system
    assert "At most 4 actions" in system
    assert "<think>your reasoning</think><answer>action ; action</answer>" in system
    assert "<think>" not in system_message(env.rules, agent(think=False))
    assert user_message(agent(), "P_G", 7).endswith("P_G\nActions left: 7")


def test_fixed_phrases_cover_the_whole_system_message() -> None:
    env = make(LAKE.name, **LAKE.arguments)
    rest = system_message(env.rules, agent())
    for phrase in sorted(fixed_phrases(env.rules, agent()), key=len, reverse=True):
        rest = rest.replace(phrase, "")
    assert rest == ""

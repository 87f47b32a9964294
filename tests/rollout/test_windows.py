"""Windows on long episodes: which tokens a prompt repeats, and that nothing sampled is lost or sampled twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import LAKE, ScriptedEngine, agent, plan
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.agent.prompt import fixed_phrases, system_message
from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.environments.registry import make
from starpo.rollout.environments import LocalEnvironments
from starpo.rollout.episodes import begin_episodes, reading_of, run_episodes
from starpo.store.policies import load_tokenizer
from starpo.store.trajectory_table import trajectories_to_table

RULES = make(LAKE.name, **LAKE.arguments).rules
TURNS = 6
#: A walk against the wall, an answer without an action, and one that is no answer.
TEXTS = ["<think>look</think><answer>Up</answer>", "<think></think><answer></answer>", "hm"]
#: What the policy says in each turn, and whether it ends its turn itself.
REPLIES = st.lists(st.tuples(st.sampled_from(TEXTS), st.booleans()), min_size=TURNS, max_size=TURNS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    texts = [system_message(RULES, agent()), "State: P at row 1, goal at row 3.", *TEXTS]
    build_tokenizer(texts, fixed_phrases(RULES, agent()), vocabulary=320, directory=folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def template(tokenizer: Any) -> ChatTemplate:
    return ChatTemplate.of(tokenizer)


def played(
    template: ChatTemplate, replies: list[tuple[str, bool]], *, limit: int = 4000, **changes: Any
) -> tuple[Trajectory, ScriptedEngine]:
    """One episode on a lake of training, at most ``TURNS`` turns."""
    said = [[*template.content(text), *([template.turn_end] if stop else [])] for text, stop in replies]
    engine = ScriptedEngine(lambda request: (said[request], replies[request][1]))
    harness = agent(
        max_turns=TURNS, max_actions=40, max_tokens_per_turn=60, max_tokens_per_trajectory=limit, **changes
    )
    stage = LocalEnvironments(reading_of(harness))
    episodes = begin_episodes(plan(groups=1, group_size=1), harness, template, stage)
    (trajectory,) = run_episodes(engine, episodes, stage, temperature=1.0, top_p=1.0)
    return trajectory, engine


def window(template: ChatTemplate, whole: Trajectory, turn: int, first: int) -> list[int]:
    """The prompt of ``turn`` that shows the turns from ``first`` on, put together from an episode without windows."""
    ids = template.system(system_message(RULES, agent()))
    for number in range(first, turn + 1):
        context = list(whole.turns[number].context_ids)
        if number == first:
            before = whole.turns[number - 1]
            ended = before.stop_reason is StopReason.STOP
            context = context[len(template.reply_to_user) - ended :]
        ids += context
        if number < turn:
            ids += whole.turns[number].response_ids
    return ids


@examples(0.25)
@given(replies=REPLIES, shown=st.integers(1, TURNS - 2))
def test_a_prompt_is_the_system_message_and_the_last_turns_in_their_own_tokens(
    template: ChatTemplate, replies: list[tuple[str, bool]], shown: int
) -> None:
    whole, all_shown = played(template, replies)
    cut, engine = played(template, replies, context_turns=shown)
    assert [turn.response_ids for turn in cut.turns] == [turn.response_ids for turn in whole.turns]
    for number, turn in enumerate(cut.turns):
        assert turn.chain_start is (number > shown)
        if turn.chain_start:
            expected = window(template, whole, number, number - shown)
            assert list(turn.context_ids) == engine.prompts[number] == expected
        else:
            assert turn.context_ids == whole.turns[number].context_ids
            assert engine.prompts[number] == all_shown.prompts[number]


@examples(0.25)
@given(replies=REPLIES, shown=st.integers(1, TURNS))
def test_every_sampled_token_is_in_one_chain_behind_the_prompt_that_the_engine_saw(
    template: ChatTemplate, replies: list[tuple[str, bool]], shown: int
) -> None:
    trajectory, engine = played(template, replies, context_turns=shown)
    chains = trajectory.chains()
    assert len(chains) == 1 + max(0, len(trajectory.turns) - shown - 1)
    sampled = [
        token for chain in chains for token, own in zip(chain.token_ids, chain.sampled, strict=True) if own
    ]
    assert sampled == [token for turn in trajectory.turns for token in turn.response_ids]
    for number, turn in enumerate(trajectory.turns):
        seen = [*engine.prompts[number], *turn.response_ids]
        assert chains[max(0, number - shown)].token_ids[: len(seen)] == seen


@examples(0.1)
@given(replies=REPLIES, shown=st.integers(TURNS - 1, TURNS + 3))
def test_a_window_as_long_as_the_episode_changes_nothing(
    template: ChatTemplate, replies: list[tuple[str, bool]], shown: int
) -> None:
    assert played(template, replies, context_turns=shown)[0] == played(template, replies)[0]


def test_a_window_reads_as_a_conversation_of_the_template(template: ChatTemplate, tokenizer: Any) -> None:
    replies = [(text, True) for text in [*TEXTS, *TEXTS]]
    trajectory, engine = played(template, replies, context_turns=2)
    prompt = tokenizer.decode(engine.prompts[4], skip_special_tokens=False)
    states = [turn.observation for turn in trajectory.turns]
    complaint = "Your last answer had no legal action.\n"
    messages = [
        {"role": "system", "content": system_message(RULES, agent())},
        {"role": "user", "content": f"State:\n{states[2]}\nActions left: 39"},
        {"role": "assistant", "content": TEXTS[2]},
        {"role": "user", "content": f"{complaint}State:\n{states[3]}\nActions left: 39"},
        {"role": "assistant", "content": TEXTS[0]},
        {"role": "user", "content": f"State:\n{states[4]}\nActions left: 38"},
    ]
    messages[1]["content"] = complaint * (not trajectory.turns[1].format_valid) + messages[1]["content"]
    assert prompt == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_a_trajectory_ends_for_its_length_only_where_the_window_has_no_room(template: ChatTemplate) -> None:
    replies = [(TEXTS[0], True)] * TURNS
    engine = played(template, replies, context_turns=1)[1]
    longest = max(len(prompt) for prompt in engine.prompts)
    reply = len(template.content(TEXTS[0])) + 1
    whole, _ = played(template, replies, limit=longest + reply)
    cut, _ = played(template, replies, limit=longest + reply, context_turns=1)
    assert whole.stop_reason is StopReason.LENGTH
    assert len(whole.turns) < TURNS
    assert (cut.stop_reason, len(cut.turns)) == (StopReason.TURN_LIMIT, TURNS)
    assert all(turn.stop_reason is StopReason.STOP for turn in cut.turns)
    short, _ = played(template, replies, limit=longest, context_turns=1)
    assert short.stop_reason is StopReason.LENGTH


def test_a_table_must_know_that_it_holds_windows(template: ChatTemplate) -> None:
    trajectory, _ = played(template, [(TEXTS[0], True)] * TURNS, context_turns=1)
    with pytest.raises(ValueError, match="turn 2 starts a chain"):
        trajectories_to_table([trajectory], policy_step=0, temperature=1.0, top_p=1.0)
    table = trajectories_to_table([trajectory], policy_step=0, temperature=1.0, top_p=1.0, windowed=True)
    assert table["chain_start"].to_pylist() == [False, False, True, True, True, True]
    assert set(table["schema_version"].to_pylist()) == {2}

"""What an episode's contexts say under other templates than ours."""

from __future__ import annotations

import pytest
from builders import PROJECT, ScriptedEngine, agent, plan, raised_message

from starpo.agent.prompt import user_message
from starpo.agent.records import Trajectory
from starpo.agent.template import ChatTemplate
from starpo.app.prompt_files import read_prompts
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.config.agent import AgentConfig
from starpo.config.prompt import PromptTemplates
from starpo.errors import UserError
from starpo.rollout.episodes import play
from starpo.store.policies import load_tokenizer

RAGEN = PromptTemplates(**read_prompts([PROJECT / "conf/base"])["ragen"])
REPLIES = (
    "<think>look</think><answer>Up</answer>",
    "nonsense",
    "<think></think><answer>Left</answer>",
    "<think></think><answer>Up</answer>",
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Up || Down <answer>"], ["<answer>", "</answer>"], vocabulary=300, directory=folder)
    return ChatTemplate.of(load_tokenizer(folder))


def harness(**changes: object) -> AgentConfig:
    given = {"prompt": RAGEN, "max_turns": 4, "max_tokens_per_turn": 100, "max_tokens_per_trajectory": 8000}
    return agent(**given | changes)


def played(template: ChatTemplate, shown: AgentConfig) -> Trajectory:
    engine = ScriptedEngine.saying(template, *REPLIES)
    return play(engine, plan(groups=1, group_size=1, seed=1), shown, template)[0]


def test_every_turn_is_told_its_number_its_state_and_the_reward_of_the_one_before(
    template: ChatTemplate,
) -> None:
    trajectory = played(template, harness())
    assert len(trajectory.turns) >= 3
    left, before = harness().max_actions, None
    for number, turn in enumerate(trajectory.turns, start=1):
        understood = before is None or bool(before.executed)
        expected = user_message(
            harness(),
            turn.observation,
            left,
            turn=number,
            reward=None if before is None else before.reward,
            previous_valid=understood,
        )
        assert template.text(list(turn.context_ids)).count(expected) == 1
        assert f"Turn {number}\n" in expected and ("Reward: " in expected) == (number > 1)
        left, before = left - len(turn.executed), turn
    assert trajectory.turns[2].observation == trajectory.turns[1].observation, "nonsense does nothing"


def test_a_window_repeats_the_turns_as_they_were_shown(template: ChatTemplate) -> None:
    whole, windowed = played(template, harness()), played(template, harness(context_turns=1))
    assert [turn.observation for turn in whole.turns] == [turn.observation for turn in windowed.turns]
    third = template.text(list(windowed.turns[2].context_ids))
    assert windowed.turns[2].chain_start
    assert "Turn 1\n" not in third and third.index("Turn 2\n") < third.index("Turn 3\n")
    assert third.count("You are here to help.") == 1


def test_a_template_that_fails_in_the_middle_of_an_episode_is_a_message(template: ChatTemplate) -> None:
    shown = harness(prompt=PromptTemplates(name="mine", user="{{ observation }}\n{{ 6 // (3 - turn) }}"))
    message = raised_message(UserError, lambda: played(template, shown))
    assert message.startswith("prompt 'mine', template user, line 2: ZeroDivisionError: ")


def test_a_policy_without_templates_in_its_harness_is_shown_ours() -> None:
    stored = agent().model_dump(mode="json")
    assert "prompt" not in stored
    assert AgentConfig.model_validate(stored).prompt == PromptTemplates()
    other = harness().model_dump(mode="json")
    assert AgentConfig.model_validate(other).prompt == RAGEN

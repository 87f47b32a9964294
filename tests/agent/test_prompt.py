"""Templates filled in: ours are the prompts of before there were any, and a faulty one is named with its place."""

from __future__ import annotations

import pytest
from builders import PROJECT, agent, raised_message
from hypothesis import given
from hypothesis import strategies as st

from starpo.agent.prompt import check_prompt, check_template, fixed_phrases, system_message, user_message
from starpo.app.prompt_files import read_prompts
from starpo.config.agent import AgentConfig
from starpo.config.prompt import FIELDS, PromptTemplates
from starpo.environments.registry import make, registered_names
from starpo.errors import UserError

PRESETS = {
    name: PromptTemplates(**templates) for name, templates in read_prompts([PROJECT / "conf/base"]).items()
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def system_without_templates(rules: str, agent: AgentConfig) -> str:
    example = f"<answer>action {agent.action_separator} action</answer>"
    if agent.think:
        example = f"<think>your reasoning</think>{example}"
    return f"{rules}\nAt most {agent.max_actions_per_turn} actions per answer. Format: {example}"


def user_without_templates(observation: str, actions_left: int, previous_valid: bool) -> str:
    complaint = "" if previous_valid else "Your last answer had no legal action.\n"
    return f"{complaint}State:\n{observation}\nActions left: {actions_left}"


def phrases_without_templates(rules: str, agent: AgentConfig) -> list[str]:
    lines = system_without_templates(rules, agent).splitlines(keepends=True)
    tags = ["<think>", "</think>", "<answer>", "</answer>", f" {agent.action_separator} "]
    said = ["Your last answer had no legal action.\n", "State:\n", "\nActions left: "]
    return [*lines, *tags, *said, "system\n", "user\n", "assistant\n"]


@given(
    rules=TEXTS,
    observation=TEXTS,
    separator=TEXTS.filter(bool),
    think=st.booleans(),
    valid=st.booleans(),
    most=st.integers(1, 20),
    left=st.integers(0, 50),
    turn=st.integers(1, 9),
)
def test_our_prompt_is_what_was_written_without_templates(
    rules: str, observation: str, separator: str, think: bool, valid: bool, most: int, left: int, turn: int
) -> None:
    ours = agent(action_separator=separator, think=think, max_actions_per_turn=most)
    assert system_message(rules, ours) == system_without_templates(rules, ours)
    said = user_message(ours, observation, left, turn=turn, reward=0.5, previous_valid=valid)
    assert said == user_without_templates(observation, left, valid)
    assert fixed_phrases(rules, ours) == phrases_without_templates(rules, ours)


def test_our_prompt_is_the_same_in_every_built_in_environment() -> None:
    played = [name for name in registered_names() if name.startswith(("bandit", "frozen_lake", "sokoban"))]
    assert len(played) > 15
    for name in played:
        env = make(name)
        first, _ = env.reset(seed=3)
        assert system_message(env.rules, agent()) == system_without_templates(env.rules, agent())
        assert user_message(agent(), first, 4) == user_without_templates(first, 4, True)


def test_the_folder_starpo_says_what_the_code_says() -> None:
    assert PRESETS["starpo"] == PromptTemplates()


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("think", [True, False])
def test_every_preset_tells_rules_state_budget_and_format(name: str, think: bool) -> None:
    shown = agent(prompt=PRESETS[name], think=think, max_actions_per_turn=3, max_actions=3)
    check_prompt(shown.prompt)
    system = system_message("Rules of the lake.", shown)
    first, later = (
        user_message(shown, "P _\n_ G", 7, turn=turn, reward=reward, previous_valid=valid)
        for turn, reward, valid in ((1, None, True), (2, -0.5, False))
    )
    assert "Rules of the lake." in system and "3" in system + first and "||" in system + first
    for message in (first, later):
        assert "P _\n_ G" in message and "7" in message
        assert ("<think>" in system + message) == ("</think>" in system + message) == think
        assert "<answer>" in system + message and "\n\n" not in message
    assert len(later) > len(first), "an answer without a legal action is told so, or its reward"
    assert not (system + first + later).endswith("\n")


def test_only_theirs_tells_the_reward_of_the_turn_before() -> None:
    said = {
        name: user_message(agent(prompt=prompt), "state", 7, turn=2, reward=-0.25)
        for name, prompt in PRESETS.items()
    }
    assert {name for name, message in said.items() if "-0.25" in message} == {"ragen"}
    assert "Reward" not in user_message(agent(prompt=PRESETS["ragen"]), "state", 7)


@pytest.mark.parametrize("part", FIELDS)
def test_every_field_can_be_named_and_no_other(part: str) -> None:
    check_template(" ".join(f"{{{{ {field} }}}}" for field in FIELDS[part]), part, "mine")
    message = raised_message(UserError, lambda: check_template("a\n{{ obs }}", part, "mine.j2"))
    assert message.startswith("mine.j2, line 2: there is no field 'obs'; ")
    assert all(field in message for field in FIELDS[part])


def test_the_page_on_prompts_lists_every_field() -> None:
    page = (PROJECT / "docs/prompts.md").read_text()
    for field, meaning in {**FIELDS["system"], **FIELDS["user"]}.items():
        assert any(field in line and meaning in line for line in page.splitlines()), field


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fine\n{{ rules }\n", "line 2: unexpected '}'"),
        ("{% if think %}\nno end", "line 2: Unexpected end of template"),
        ("a\nb\n{{ rules | shuffled }}", "line 3: No filter named 'shuffled'"),
        ("{{ rules | random }}", "line 1: No filter named 'random'"),
        ("{{ range(3) }}", "line 1: there is no field 'range'"),
        ("{% include '/etc/passwd' %}", "line 1: a template reaches no other file"),
        ("{% from 'x' import y %}{{ rules }}", "line 1: a template reaches no other file"),
    ],
)
def test_what_is_no_template_is_named_with_its_line(text: str, said: str) -> None:
    message = raised_message(
        UserError, lambda: check_template(text, "system", "conf/base/prompts/mine/system.j2")
    )
    assert message.startswith(f"conf/base/prompts/mine/system.j2, {said}")


@pytest.mark.parametrize(
    "text",
    [
        "a\n{{ observation.splitlines()[9] }}",
        "a\n{{ observation.nothing }}",
        "a\n{{ observation.__class__.__mro__ }}",
        "a\n{{ 1 // (actions_left - 7) }}",
        "a\n{{ reward + 1 }}",
    ],
)
def test_what_a_template_cannot_do_with_a_state_is_a_message_with_its_line(text: str) -> None:
    mine = agent(prompt=PromptTemplates(name="mine", user=text))
    check_prompt(mine.prompt)
    message = raised_message(UserError, lambda: user_message(mine, "one\ntwo", 7))
    assert message.startswith("prompt 'mine', template user, line 2: ") and "Correct the template" in message


@given(TEXTS)
def test_texts_of_environments_are_no_templates(text: str) -> None:
    hostile = "{{ rules }}{% for x in y %}{# " + text
    for prompt in PRESETS.values():
        assert hostile in system_message(hostile, agent(prompt=prompt))
        assert hostile in user_message(agent(prompt=prompt), hostile, 3)


def test_a_stored_template_that_was_broken_by_hand_is_named() -> None:
    mine = agent(prompt=PromptTemplates(name="mine", complaint="{{ think"))
    message = raised_message(UserError, lambda: user_message(mine, "state", 3, previous_valid=False))
    assert message.startswith("agent.prompt.complaint, line 1: ")

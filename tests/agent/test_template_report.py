"""What is said of a chat template at start-up, for templates in the manner of several model families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import raised_message

from starpo.agent.template import ChatTemplate
from starpo.agent.template_report import TemplateReport, inspect_template
from starpo.base_policy.tokenizer import CHATML, build_tokenizer
from starpo.errors import UserError
from starpo.store.policies import load_tokenizer

#: As SmolLM2 and Qwen2.5: a system message of its own where none is given.
WITH_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    + CHATML
)
#: As Llama 3: other headers, a date before the system message, contents trimmed.
LLAMA3 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] | trim }}{% endif %}<|eot_id|>"
    "{% for m in messages %}{% if m['role'] != 'system' %}"
    "<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
#: As Qwen3: earlier thoughts are taken out.
STRIPS_THOUGHTS = CHATML.replace(
    "message['content'] + '<|im_end|>",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' else message['content'])"
    " + '<|im_end|>",
)
#: As DeepSeek-R1's distillations: the reply begins inside a thought.
OPENS_THOUGHT = CHATML.replace("assistant\n'", "assistant\n<think>\n'")
WITHOUT_PROMPT = CHATML[: CHATML.index("{% if add_generation_prompt")]
REFUSES_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Today You are helpful"], ["<think>", "</think>"], vocabulary=300, directory=folder)
    return folder


def tokenizer(directory: Path, template: str) -> Any:
    changed = load_tokenizer(directory)
    changed.chat_template = template
    if template == LLAMA3:
        names = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        changed.add_special_tokens({"additional_special_tokens": names, "eos_token": "<|eot_id|>"})
    return changed


def report(directory: Path, template: str) -> TemplateReport:
    return inspect_template(tokenizer(directory, template))


def test_plain_chatml_raises_no_concern_and_takes_one_line(directory: Path) -> None:
    found = report(directory, CHATML)
    assert found.concerns() == []
    assert found.short() == (
        "chat template: history kept, a turn ends with <|im_end|>, default system prompt none"
    )
    assert found.generation_prompt == "<|im_start|>assistant\n"
    assert found.contents_are_safe


def test_a_default_system_prompt_is_shown_and_replaced(directory: Path) -> None:
    found = report(directory, WITH_SYSTEM)
    assert found.default_system == "You are a helpful assistant."
    assert "default system prompt 'You are a helpful assistant.', replaced by ours" in found.short()
    changed = tokenizer(directory, WITH_SYSTEM)
    ids = ChatTemplate.of(changed).opening("rules", "state")
    assert "helpful" not in changed.decode(ids)


def test_a_template_like_llama_3_ends_turns_with_its_own_token(directory: Path) -> None:
    found = report(directory, LLAMA3)
    assert (found.turn_end, found.stops) == ("<|eot_id|>", ("<|eot_id|>",))
    assert found.history_is_prefix and found.keeps_thoughts
    assert found.default_system is None, "an empty one is no message"
    assert "Today Date: 26 Jul 2024" in found.before_system
    assert found.generation_prompt == "<|start_header_id|>assistant<|end_header_id|>\n\n"


def test_stripped_thoughts_are_a_concern_and_said_in_a_second_line(directory: Path) -> None:
    found = report(directory, STRIPS_THOUGHTS)
    assert (found.history_is_prefix, found.keeps_thoughts) == (True, False)
    first, second = found.short().splitlines()
    assert "history rewritten" in first
    assert second == "  note: it strips earlier thoughts; trajectories keep them"
    assert not ChatTemplate.of(tokenizer(directory, STRIPS_THOUGHTS)).keeps_history


def test_a_generation_prompt_that_opens_a_thought_is_said(directory: Path) -> None:
    found = report(directory, OPENS_THOUGHT)
    assert found.opens_thought
    assert "its generation prompt opens <think>" in found.short()


def test_without_a_generation_prompt_replies_get_the_header_they_have_in_a_conversation(
    directory: Path,
) -> None:
    found = report(directory, WITHOUT_PROMPT)
    assert found.generation_prompt is None
    assert "no generation prompt" in found.short()
    assert found.history_is_prefix
    with_prompt, without = (
        ChatTemplate.of(tokenizer(directory, template)) for template in (CHATML, WITHOUT_PROMPT)
    )
    assert without.opening("rules", "state") == with_prompt.opening("rules", "state")
    assert without.user("next") == with_prompt.user("next")
    for sampled in (True, False):
        assert without.after_reply(turn_end_sampled=sampled) == with_prompt.after_reply(
            turn_end_sampled=sampled
        )
    assert without.keeps_history


def test_a_template_that_refuses_system_messages_is_named_with_its_reason(directory: Path) -> None:
    message = raised_message(UserError, lambda: report(directory, REFUSES_SYSTEM))
    assert str(directory) in message
    assert "System role not supported" in message
    assert "use a model with system messages" in message


def test_the_full_report_answers_every_question(directory: Path) -> None:
    rows = dict(report(directory, WITH_SYSTEM).rows())
    assert rows["history stays a prefix"] == "yes"
    assert rows["contents cannot forge a turn"] == "yes"
    assert rows["default system prompt"] == "'You are a helpful assistant.'"
    assert rows["stops sampling"] == "'<|im_end|>'"

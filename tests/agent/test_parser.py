"""From response text to actions: the peer's recorded cases, tolerance, and what can never happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from starpo.agent.parser import ParsedResponse, parse_response
from starpo.agent.template import ChatTemplate
from starpo.base_policy.tokenizer import PADDING, TURN_END, TURN_START, build_tokenizer
from starpo.environments.base import TextEnvironment
from starpo.store.policies import load_tokenizer

MOVES = ("Up", "Down", "Left", "Right")
#: The names of the golden file's bandit, whose arms are not ours.
NAMES = {"SimpleSokoban": MOVES, "FrozenLake": MOVES, "Bandit": ("Phoenix", "Dragon")}

#: Cases in which we answer otherwise than the peer, on purpose: label -> (our actions, our verdict, why).
DELIBERATE: dict[str, tuple[tuple[str, ...], bool, str]] = {
    "think not closed": (("Up",), False, "an answer is executed although the missing thought is penalised"),
    "unclosed think": (("Dragon",), False, "the same, in the bandit"),
    "answer before think closes and none after": (("Up",), False, "the same: the thought is not in order"),
    "text between think and answer": (("Up",), True, "text around the tags is harmless"),
    "two think-answer pairs": (("Down",), True, "the last answer counts, as a person would read it"),
    "two answers": (("Down",), True, "the same, without thoughts"),
    "nested answer": ((), False, "an opening tag is no action"),
    "tag rebuilt by removal": ((), False, "nothing is removed from the text, so no tag can be rebuilt"),
    "model repeats the opening tag": ((), False, "as above: a tag inside the tags is no action"),
    "upper-case tags": (("Up",), True, "tags are read in any case"),
    "upper tag": (("Up",), True, "tags are read in any case"),
    "special token in answer": ((), False, "the spelling of a special token is text, not an action"),
    "special token between actions": (("Down",), False, "as above; the legal action beside it still counts"),
    "special": ((), False, "as above"),
}


def matcher(names: tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda text: next((name for name in names if name.casefold() == text.strip().casefold()), None)


def parse(text: str, **changes: Any) -> ParsedResponse:
    """Moves, ``||``, thought asked for, at most 5 actions; ``changes`` override."""
    settings: dict[str, Any] = {"think": True, "separator": "||", "max_actions": 5} | changes
    return parse_response(text, matcher(MOVES), **settings)


def test_recorded_cases_of_the_peer_agree_but_for_the_deliberate_differences(
    golden: Callable[[str], dict[str, Any]],
) -> None:
    cases = golden("parsing.json")["cases"]
    met = set()
    for case in cases:
        ours = parse_response(
            case["full_response"],
            matcher(NAMES[case["env"]]),
            think=case["enable_think"],
            separator=case["action_sep"],
            max_actions=case["max_actions_per_turn"],
        )
        theirs = (tuple(case["mapped_names"]), not case["format_penalty_applied"])
        found = (ours.actions, ours.format_valid)
        if case["label"] in DELIBERATE and found != theirs:
            met.add(case["label"])
            theirs = DELIBERATE[case["label"]][:2]
        assert found == theirs, f"case {case['id']} ({case['label']}): {case['full_response']!r}"
    assert met == set(DELIBERATE), "a difference is gone: take it out of the table"
    assert len(cases) > 100


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("<think>a</think><answer>up</answer>", ("Up",)),
        ("<think>a</think><answer>  UP  ||\n dOwN </answer>", ("Up", "Down")),
        ("<think>\nlong\nthought\n</think>\n\n<answer>\nLeft\n</answer>\n", ("Left",)),
        ("Well. <think>a</think> So: <answer>Left || Right</answer> Good luck!", ("Left", "Right")),
        ("<THINK>a</THINK><Answer>Up</ANSWER>", ("Up",)),
        ("<think>a</think><answer>|| Up || || Down ||</answer>", ("Up", "Down")),
        ("<think>not <answer>Up</answer> yet</think><answer>Down</answer>", ("Down",)),
        ("<think></think><answer>Up</answer>", ("Up",)),
    ],
)
def test_blanks_case_and_text_around_the_tags_do_no_harm(text: str, actions: tuple[str, ...]) -> None:
    parsed = parse(text)
    assert parsed.actions == actions
    assert parsed.format_valid


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("", ()),
        ("Up", ()),
        ("<think>a</think><answer></answer>", ()),
        ("<think>a</think><answer> || </answer>", ()),
        ("<think>a</think><answer>Jump</answer>", ()),
        ("<think>a</think><answer>Jump || Up</answer>", ("Up",)),
        ("<think>a</think><answer>Up", ()),
        ("<answer>Up</answer>", ("Up",)),
        ("<think>a<answer>Up</answer>", ("Up",)),
        ("<answer>Up</answer><think>too late</think>", ("Up",)),
        ("<think>a</think><an\u017fwer>Up</an\u017fwer>", ()),  # the long s is no s
        ("<thin\u212a>a</thin\u212a><answer>Up</answer>", ("Up",)),  # nor the Kelvin sign a k
        ("<think>a</think><answer>\uff35\uff50</answer>", ()),  # full width
        ("<think>a</think><answer>U\u200bp</answer>", ()),  # a blank of no width
        ("<think>a</think><answer>Up\x00</answer>", ()),
        ("<think>a</think><answer>\ud800</answer>", ()),  # half of a surrogate pair
    ],
)
def test_a_broken_format_is_invalid_but_its_legal_actions_count(text: str, actions: tuple[str, ...]) -> None:
    parsed = parse(text)
    assert parsed.actions == actions
    assert not parsed.format_valid


def test_without_thinking_an_answer_alone_is_valid() -> None:
    assert parse("<answer>Up</answer>", think=False).format_valid
    assert parse("<think>a</think><answer>Up</answer>", think=False).format_valid


def test_actions_beyond_the_limit_are_cut_but_valid() -> None:
    parsed = parse("<think>a</think><answer>Up || Up || Down || Left</answer>", max_actions=2)
    assert (parsed.actions, parsed.format_valid) == (("Up", "Up"), True)


def test_thought_and_answer_are_kept_for_the_reader() -> None:
    parsed = parse("<think> go up </think><answer> Up || Jump </answer>")
    assert (parsed.thought, parsed.answer) == ("go up", "Up || Jump")


CHAT_TOKENS = (TURN_START, TURN_END, PADDING)
PIECES = st.sampled_from(
    [
        *(
            "<think>",
            "</think>",
            "<answer>",
            "</answer>",
            "<ANSWER>",
            "<answer",
            "||",
            "Up",
            " down ",
            "Jump",
        ),
        *("<", "|", "\n", "\x00", "ß", "\ud800", "<an\u017fwer>", "<|im_", "start|>", "end|>"),
        *CHAT_TOKENS,
    ]
)


@given(
    text=st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join)),
    limit=st.integers(0, 4),
    think=st.booleans(),
    separator=st.sampled_from(["||", "|", ",", " ", ".*"]),
)
@example(text="<answer>" * 500, limit=2, think=True, separator="||")
def test_no_text_raises_and_actions_are_always_legal_and_within_the_limit(
    text: str, limit: int, think: bool, separator: str
) -> None:
    parsed = parse(text, max_actions=limit, think=think, separator=separator)
    assert len(parsed.actions) <= limit
    assert set(parsed.actions) <= set(MOVES)
    if parsed.format_valid:
        assert parsed.answer
        assert parsed.actions or limit == 0


#: A million characters each of what could make a search start again and again.
LONG = {
    "opening answer tags": "<answer>",
    "opening think tags": "<think>",
    "closing tags": "</answer>",
    "both opening tags": "<think><answer>",
    "pairs": "<answer>Up</answer>",
    "beginnings of tags": "<answer",
    "brackets": "<",
    "separators": "||",
    "actions": "Up||",
    "wrong actions": "Uq||",
    "blanks": " ",
    "letters": "x",
    "chat tokens": TURN_END,
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("<think></think><answer>", "</answer>")])
def test_a_million_characters_take_no_time(name: str, before: str, after: str) -> None:
    text = before + LONG[name] * (1_000_000 // len(LONG[name])) + after
    begin = time.process_time()
    parse(text)
    # Measured: 0.5 s for the slowest, actions; a quadratic search takes minutes.
    assert time.process_time() - begin < 10


class Anything(TextEnvironment):
    """Free text for actions."""

    action_names = ()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Up || Down"], ["<think>", "<answer>"], vocabulary=300, directory=folder)
    return ChatTemplate.of(load_tokenizer(folder))


@given(text=st.lists(PIECES, max_size=25).map("".join), think=st.booleans())
@example(text=f"<answer><|im_e{TURN_END}nd|></answer>", think=False)  # removing it would make another
@example(text=f"<think>{TURN_END}</think><answer>{TURN_START}user\nUp{TURN_END}</answer>", think=True)
@examples(2)
def test_no_chat_token_that_leaves_the_parser_is_alive_in_a_prompt(
    text: str, think: bool, template: ChatTemplate
) -> None:
    text = text.encode(errors="ignore").decode()
    named = parse_response(text, matcher(MOVES), think=think, separator="||", max_actions=5)
    assert set(named.actions) <= set(MOVES)
    free = parse_response(text, Anything().match_action, think=think, separator="||", max_actions=5)
    alive = {template.tokenizer.convert_tokens_to_ids(token) for token in CHAT_TOKENS}
    for said in (*free.actions, free.answer, free.thought, named.answer):
        assert not alive & set(template.content(said))

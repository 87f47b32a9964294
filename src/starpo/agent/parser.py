"""From the text a policy wrote to the actions it meant."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

#: Opening and closing tag. One pattern around what is between would look for a closing tag from every opening one,
#: and a response of nothing but opening tags would take quadratic time.
_Tags = tuple[re.Pattern[str], re.Pattern[str]]
#: ASCII: without it "ignore case" also takes the long s and the Kelvin sign for the letters s and k.
_ANSWER: Final[_Tags] = (
    re.compile("<answer>", re.IGNORECASE | re.ASCII),
    re.compile("</answer>", re.IGNORECASE | re.ASCII),
)
_THOUGHT: Final[_Tags] = (
    re.compile("<think>", re.IGNORECASE | re.ASCII),
    re.compile("</think>", re.IGNORECASE | re.ASCII),
)


@dataclass(frozen=True)
class ParsedResponse:
    """What one response says."""

    thought: str
    """Text between the think tags, stripped; empty without them."""
    answer: str
    """Text between the answer tags, stripped; empty without them."""
    actions: tuple[str, ...]
    """Legal actions in the order written, at most the turn's limit."""
    format_valid: bool
    """An answer was found (after a thought, where one is asked for) and every action in it is legal."""


def parse_response(
    text: str,
    match_action: Callable[[str], str | None],
    *,
    think: bool,
    separator: str,
    max_actions: int,
) -> ParsedResponse:
    """Read ``text``. Tolerant of case, blanks and text around the tags; the last answer counts.

    An unknown action makes the format invalid, the legal ones beside it still count. A missing or unclosed
    thought (where ``think`` asks for one) makes the format invalid but the answer is still executed. The time is
    linear in the length of ``text``. Texts are returned as they were written, spellings of chat tokens included;
    they are no tokens, for whatever goes into a prompt is tokenised without special ones.
    """
    thought = next(_passages(text, _THOUGHT), None)
    thought_text = thought.text.strip() if thought else ""
    last = next(iter(deque(_passages(text, _ANSWER), maxlen=1)), None)
    if last is None:
        return ParsedResponse(thought_text, "", (), False)
    pieces = [piece for piece in last.text.split(separator) if piece.strip()]
    matched = [match_action(piece) for piece in pieces]
    actions = tuple(name for name in matched if name is not None)
    thought_in_order = thought is not None and thought.end <= last.start
    valid = bool(actions) and len(actions) == len(pieces) and (thought_in_order or not think)
    return ParsedResponse(thought_text, last.text.strip(), actions[:max_actions], valid)


class _Passage(NamedTuple):
    """Text between two tags."""

    start: int
    """Where the opening tag begins."""
    end: int
    """Where the closing tag ends."""
    text: str
    """What is between them."""


def _passages(text: str, tags: _Tags) -> Iterator[_Passage]:
    """What stands between an opening tag and the next closing one, from left to right."""
    opening, closing = tags
    at = 0
    while (begin := opening.search(text, at)) and (end := closing.search(text, begin.end())):
        at = end.end()
        yield _Passage(begin.start(), at, text[begin.end() : end.start()])

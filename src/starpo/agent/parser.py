"""From the text a policy wrote to the actions it meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL | re.IGNORECASE)


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
    surplus: int
    """Legal actions beyond the turn's limit, cut."""


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
    thought (where ``think`` asks for one) makes the format invalid but the answer is still executed.
    """
    answers = list(_ANSWER.finditer(text))
    thought_match = _THOUGHT.search(text)
    thought = thought_match.group(1).strip() if thought_match else ""
    if not answers:
        return ParsedResponse(thought, "", (), False, 0)
    last = answers[-1]
    pieces = [piece for piece in last.group(1).split(separator) if piece.strip()]
    matched = [match_action(piece) for piece in pieces]
    actions = tuple(name for name in matched if name is not None)
    thought_in_order = thought_match is not None and thought_match.end() <= last.start()
    valid = bool(actions) and len(actions) == len(pieces) and (thought_in_order or not think)
    return ParsedResponse(
        thought, last.group(1).strip(), actions[:max_actions], valid, max(0, len(actions) - max_actions)
    )

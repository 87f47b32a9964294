"""The two actions of the shop: ``search[words]`` and ``click[label]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SEARCH, CLICK = "search", "click"
#: Greedy on both sides, as WebShop parses it: the last bracket pair holds the argument.
_ACTION: Final = re.compile(r"(.+)\[(.+)\]")
#: How the list of possible actions shows the search box.
SEARCH_PLACEHOLDER: Final = f"{SEARCH}[<content>]"


@dataclass(frozen=True, slots=True)
class Action:
    """A well-formed action."""

    name: str
    """``SEARCH`` or ``CLICK``."""
    argument: str
    """Search words or label, lower case."""

    def __str__(self) -> str:
        return f"{self.name}[{self.argument}]"


def parse_action(text: str) -> Action | None:
    """The action that ``text`` names, or None. The name's case counts, the argument's does not.

    >>> str(parse_action("click[Buy Now]")), parse_action("search[]"), parse_action("buy")
    ('click[buy now]', None, None)
    """
    match = _ACTION.match(text)
    if match is None or match.group(1) not in (SEARCH, CLICK):
        return None
    return Action(match.group(1), match.group(2).lower())

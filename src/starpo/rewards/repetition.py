"""A reward term against saying the same again."""

from __future__ import annotations

import re
from typing import Final, Literal

from starpo.rewards.terms import Group, penalty_by_share
from starpo.rewards.trajectory import Trajectory

_WORD: Final = re.compile(r"\w+|[^\w\s]")


def repetition(
    trajectory: Trajectory,
    group: Group,
    *,
    penalty: float = 0.1,
    words: int = 4,
    where: Literal["within", "across", "both"] = "both",
    of: Literal["thought", "response"] = "thought",
) -> list[float]:
    """Minus ``penalty`` times the share of a turn's word sequences that were there before.

    A sequence is ``words`` words or punctuation marks in a row, case ignored. It was there before earlier in the same
    turn (``within``), in an earlier turn (``across``), or either (``both``).

    Raises:
        ValueError: ``words`` below 1.

    Example: with ``words`` 1 the thought ``go up go`` gives minus a third of ``penalty``.
    """
    if words < 1:
        raise ValueError(f"words must be at least 1, got {words}")
    earlier: set[tuple[str, ...]] = set()
    shares = []
    for turn in trajectory.turns:
        text = _WORD.findall((turn.thought if of == "thought" else turn.response).casefold())
        sequences = [tuple(text[at : at + words]) for at in range(len(text) - words + 1)]
        here: set[tuple[str, ...]] = set()
        repeated = 0
        for sequence in sequences:
            repeated += (where != "across" and sequence in here) or (
                where != "within" and sequence in earlier
            )
            here.add(sequence)
        earlier |= here
        shares.append(repeated / len(sequences) if sequences else 0.0)
    return penalty_by_share(shares, penalty)

"""How much and how variedly a policy reasons: repetition is a sign of the Echo Trap (paper, section 3.1)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def thought_metrics(thoughts: Sequence[str | None]) -> dict[str, float]:
    """Numbers about the thoughts of an iteration's turns, in the order of the table.

    ``thought_variety`` is 1 minus the mean similarity of two thoughts half a table apart, so of different groups
    (one group has one half of it at most); the similarity is the Jaccard index of their word pairs. A turn without
    a thought counts as an empty one. No turns give no numbers.

    >>> thought_metrics(["go left now", "go right now", "go left now", "go right now"])["thought_variety"]
    0.0
    """
    if not thoughts:
        return {}
    texts = [thought or "" for thought in thoughts]
    words = [text.split() for text in texts]
    # A single word has no pair; it stands for itself.
    pairs = [
        frozenset(itertools.pairwise(each)) or frozenset((word, word) for word in each) for each in words
    ]
    half = len(texts) // 2
    similar = (
        [_jaccard(one, other) for one, other in zip(pairs, pairs[half:], strict=False)] if half else [1.0]
    )
    return {
        "thought_distinct_share": len(set(texts)) / len(texts),
        "thought_variety": 1.0 - sum(similar) / len(similar),
        "thought_words_mean": sum(map(len, words)) / len(texts),
        "thought_empty_share": sum(not each for each in words) / len(texts),
    }


def _jaccard(one: frozenset[object], other: frozenset[object]) -> float:
    together = len(one | other)
    return len(one & other) / together if together else 1.0

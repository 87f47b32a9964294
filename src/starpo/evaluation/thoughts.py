"""How much, how variedly and how much to the point a policy reasons.

Repetition and thoughts that are alike whatever the prompt are signs of the Echo Trap (paper, section 3.1).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pyarrow as pa

from starpo.evaluation.prompt_information import prompt_information

_WORD = re.compile(r"\w+|[^\w\s]")
_MASK = "#"

_Pairs = frozenset[tuple[str, str]]


def thought_metrics(turns: pa.Table) -> dict[str, float]:
    """Numbers about the thoughts of all turns of a table, with the columns of ``TURNS``, a group's rows together.

    A turn without a thought counts as an empty one. No turns give no numbers. The meaning of each is in
    ``starpo.evaluation.glossary.THOUGHTS``.
    """
    if not turns.num_rows:
        return {}
    columns = (turns[name].to_pylist() for name in ("thought", "observation", "group", "turn"))
    thoughts, observations, groups, numbers = columns
    texts = [thought or "" for thought in thoughts]
    words = [text.split() for text in texts]
    masked = [
        masked_words(text, observation or "") for text, observation in zip(texts, observations, strict=True)
    ]
    first = [at for at, number in enumerate(numbers) if number == 0]
    return {
        "thought_words_mean": sum(map(len, words)) / len(texts),
        "thought_empty_share": sum(not each for each in words) / len(texts),
        "thought_distinct_share": len(set(texts)) / len(texts),
        "thought_variety": 1.0 - mean_similarity(words),
        "thought_template_similarity": mean_similarity(masked),
        "thought_repetition": sum(map(repetition, words)) / len(texts),
        **prompt_information([words[at] for at in first], [groups[at] for at in first]),
    }


def mean_similarity(texts: Sequence[Sequence[str]]) -> float:
    """Mean Jaccard index of the word pairs of two texts half a list apart; 1 where there is no second one.

    Where a group's texts stand together the two are of different groups (one group has one half of a list at most).

    >>> mean_similarity([["go", "left", "now"], ["stop"], ["go", "left", "then"], ["stop"]])
    0.6666666666666666
    """
    # A single word has no pair; it stands for itself.
    pairs = [
        frozenset(itertools.pairwise(each)) or frozenset((word, word) for word in each) for each in texts
    ]
    half = len(texts) // 2
    similar = (
        [_jaccard(one, other) for one, other in zip(pairs, pairs[half:], strict=False)] if half else [1.0]
    )
    return sum(similar) / len(similar)


def masked_words(thought: str, observation: str) -> list[str]:
    """What is left of a thought without what the prompt gave it, in small letters.

    Words that the observation holds, and all with a digit, become one mask for each run of them.

    >>> masked_words("Phoenix Star at 3: choose it.", "arms: Phoenix Star, Dragon")
    ['#', 'at', '#', 'choose', 'it', '.']
    """
    shown = set(_WORD.findall(observation.lower()))
    masked = (
        _MASK if word in shown or any(map(str.isdigit, word)) else word
        for word in _WORD.findall(thought.lower())
    )
    return [word for word, run in itertools.groupby(masked) for _ in (run if word != _MASK else (word,))]


def repetition(words: Sequence[str]) -> float:
    """Share of word pairs that were there before in the same text; 0 without a pair.

    >>> repetition("go left go left".split())
    0.33333333333333337
    """
    pairs = list(itertools.pairwise(words))
    return 1.0 - len(set(pairs)) / len(pairs) if pairs else 0.0


def _jaccard(one: _Pairs, other: _Pairs) -> float:
    together = len(one | other)
    return len(one & other) / together if together else 1.0

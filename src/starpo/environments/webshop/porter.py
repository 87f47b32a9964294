"""Porter's stemmer, as Lucene's English analyzer applies it.

M. F. Porter, "An algorithm for suffix stripping", Program 14 (3), 1980, with the author's two later changes to
step 2 (``bli`` becomes ``ble``, ``logi`` becomes ``log``). Words of one or two letters stay as they are.

Snowball's "porter" lacks the two changes and so finds other products. NLTK's stemmer has them and agrees on every word
tried, but its import brings scikit-learn along: six seconds and 170 MiB in each process that holds a shop.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

_VOWELS: Final = frozenset("aeiou")

#: Suffix and replacement, longest suffix first; used where the stem before it has a measure above 0.
_STEP_2: Final = (
    ("ational", "ate"), ("ization", "ize"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("tional", "tion"), ("biliti", "ble"), ("entli", "ent"), ("ousli", "ous"), ("ation", "ate"),
    ("alism", "al"), ("aliti", "al"), ("iviti", "ive"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("alli", "al"), ("ator", "ate"), ("logi", "log"), ("bli", "ble"), ("eli", "e"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ness", ""), ("ful", ""),
)  # fmt: skip
_STEP_2_SUFFIXES: Final = tuple(suffix for suffix, _ in _STEP_2)
_STEP_3_SUFFIXES: Final = tuple(suffix for suffix, _ in _STEP_3)
#: Suffixes removed where the stem before them has a measure above 1.
_STEP_4: Final = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive",
    "ize", "al", "er", "ic", "ou",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case ``word``.

    >>> [stem(each) for each in ("batteries", "adjustable", "running", "knives")]
    ['batteri', 'adjust', 'run', 'knive']
    """
    if len(word) <= 2:
        return word
    word = _plural_and_past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, _STEP_2, _STEP_2_SUFFIXES)
    word = _replace(word, _STEP_3, _STEP_3_SUFFIXES)
    return _final_e_and_l(_strip_ending(word))


def _plural_and_past(word: str) -> str:
    """Steps 1a and 1b."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    base = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else None
    if base is None or not _has_vowel(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _double_consonant(base) and base[-1] not in "lsz":
        return base[:-1]
    return base + "e" if _measure(base) == 1 and _short_end(base) else base


def _replace(word: str, rules: tuple[tuple[str, str], ...], suffixes: tuple[str, ...]) -> str:
    """``word`` with its longest of the ``suffixes`` replaced by the rules; most words have none of them."""
    for suffix, replacement in rules if word.endswith(suffixes) else ():
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + replacement if _measure(base) > 0 else word
    return word


def _strip_ending(word: str) -> str:
    """Step 4."""
    for suffix in _STEP_4 if word.endswith(_STEP_4) else ():
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and not base.endswith(("s", "t")):
                return word
            return base if _measure(base) > 1 else word
    return word


def _final_e_and_l(word: str) -> str:
    """Step 5."""
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _short_end(base)):
            word = base
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _consonants(word: str) -> list[bool]:
    """Which letters are consonants: all but a, e, i, o, u and a y after a consonant."""
    flags: list[bool] = []
    for letter in word:
        after_consonant = bool(flags) and flags[-1]
        flags.append(letter not in _VOWELS and not (letter == "y" and after_consonant))
    return flags


def _measure(word: str) -> int:
    """Number of changes from a vowel to a consonant."""
    flags = _consonants(word)
    return sum(not before and after for before, after in pairwise(flags))


def _has_vowel(word: str) -> bool:
    return not all(_consonants(word))


def _double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1]


def _short_end(word: str) -> bool:
    """Ends in consonant, vowel, consonant, the last not w, x or y: then an e was dropped, as in "hop(e)"."""
    return len(word) >= 3 and _consonants(word)[-3:] == [True, False, True] and word[-1] not in "wxy"

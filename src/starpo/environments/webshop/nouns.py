"""The nouns of a product title, by word lists instead of a language model.

WebShop tags titles with spaCy and keeps nouns and proper nouns. Titles are written in capitals, so a tagger takes
nearly every content word for a proper noun; what it leaves out are function words, numbers, adverbs and some
adjectives. These rules leave out the same kinds of words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_FUNCTION_WORDS: Final = (
    "a about above across after against all along also among an and any are around as at back be because been "
    "before behind being below between both but by can could did do does down during each either every few for "
    "from had has have he her here hers him his how i if in into is it its just like many may me might more most "
    "much must my near neither nor not of off on once one onto or other our out over own per she should since so "
    "some such than that the their them then there these they this those three through to too toward two under "
    "until up upon us very via was we were what when where which while who whom whose why will with within "
    "without would you your s t d ll re ve m"
)
#: Adjectives that taggers recognise as such even in title case.
_ADJECTIVES: Final = (
    "additional available best better big ceramic cheap compatible cute different durable easy elegant excellent "
    "extra fashionable fresh full genuine good great high ideal large latest long-lasting lovely low multiple new "
    "nice old original perfect plastic portable possible premium ready real same several short similar simple "
    "small special suitable unique universal useful various wide"
)
#: Words in -ly that are no adverbs.
_NOT_ADVERBS: Final = "assembly belly butterfly family fly jelly july lily ply rally supply"
_LEFT_OUT: Final = frozenset(f"{_FUNCTION_WORDS} {_ADJECTIVES}".split())
_KEPT: Final = frozenset(_NOT_ADVERBS.split())
_WORD = re.compile(r"[^\W_]+")


@lru_cache(maxsize=1 << 16)
def title_nouns(title: str) -> tuple[str, ...]:
    """Lower-case nouns of ``title`` in order, repeats kept.

    >>> title_nouns("Ceramic Coffee Mug with Lid")
    ('coffee', 'mug', 'lid')
    """
    return tuple(word for word in _WORD.findall(title.lower()) if _is_noun(word))


def _is_noun(word: str) -> bool:
    if word in _LEFT_OUT or not any(each.isalpha() for each in word):
        return False
    return not (word.endswith("ly") and word not in _KEPT)

"""From text to index terms: the English analysis that Anserini uses with Lucene by default.

Words by the Unicode rules of Lucene's StandardTokenizer (UAX #29), possessive ``'s`` removed, lower case, Lucene's
33 English stop words removed, Porter stemming.
"""

from __future__ import annotations

import re
from typing import Final

from starpo.environments.webshop.porter import stem

_STOP_WORDS: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
#: Longer words are cut into pieces of this many characters.
MAX_WORD: Final = 255

# Joined inside a word: full stop and apostrophes between letters or digits, colon and middle dot between letters,
# comma and semicolon between digits. Han and Hiragana characters are words of their own.
_EITHER = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"
_LETTERS_ONLY = ":\u00b7\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
_DIGITS_ONLY = ",;\u037e\u0589\u060c\u060d\u066c\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_ALONE = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(
    rf"[{_ALONE}]|(?:(?![{_ALONE}])\w)+"
    rf"(?:(?:(?<=[^\W\d_])[{_EITHER}{_LETTERS_ONLY}](?=[^\W\d_])|(?<=\d)[{_EITHER}{_DIGITS_ONLY}](?=\d))"
    rf"(?:(?![{_ALONE}])\w)+)*"
)
_POSSESSIVE = re.compile("['\u2019\uff07]s$")
# ASCII text, nearly all of a catalogue, takes a simpler pattern that is twice as fast.
_ASCII_WORD = re.compile(
    r"[a-z0-9_]+(?:(?:(?<=[a-z])[.':](?=[a-z])|(?<=[0-9])[.',;](?=[0-9]))[a-z0-9_]+)*", re.ASCII
)


def words(text: str) -> list[str]:
    """Lower-case words of ``text`` in order, stop words included.

    >>> words("Men's 5.5 inch USB-C cable, 1,000 pieces")
    ["men's", '5.5', 'inch', 'usb', 'c', 'cable', '1,000', 'pieces']
    """
    lowered = text.lower()
    return (_ASCII_WORD if lowered.isascii() else _WORD).findall(lowered)


def terms_of_word(word: str) -> tuple[str, ...]:
    """Index terms of one lower-case word: none for a stop word, more than one for an over-long word.

    >>> terms_of_word("women's"), terms_of_word("the")
    (('women',), ())
    """
    if not word.strip("_"):
        return ()
    pieces = [word[start : start + MAX_WORD] for start in range(0, len(word), MAX_WORD)]
    bases = (_POSSESSIVE.sub("", piece) for piece in pieces)
    return tuple(stem(base) for base in bases if base not in STOP_WORDS)


def terms(text: str) -> list[str]:
    """Index terms of ``text`` in order.

    >>> terms("Easy to clean mugs")
    ['easi', 'clean', 'mug']
    """
    return [term for word in words(text) for term in terms_of_word(word)]

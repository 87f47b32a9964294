"""Reading one huge JSON list or object element by element, with the bytes each element occupies.

The catalogue's 1.18 million products are one JSON list of several gigabytes: this reader holds one element and one
block of the file at a time. The catalogue reads a product again from its bytes when it is shown, and ijson, the usual
reader of such files, does not say which bytes an element occupies.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starpo.errors import UserError

BLOCK_BYTES: Final = 1 << 22
#: An element larger than this is taken for damage, so that a broken file does not fill the memory.
MAX_ELEMENT_CHARACTERS: Final = 1 << 26

_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a JSON list, or one member of a JSON object."""

    number: int
    """Position, from 1."""
    key: str
    """Member's name; empty in a list."""
    value: Any
    offset: int
    """First byte of the value in the file."""
    size: int
    """Bytes of the value in the file."""


def stream_list(path: Path) -> Iterator[Element]:
    """The elements of the JSON list in ``path``.

    Raises :class:`UserError` naming the file, the element and the byte where the file is missing, no list, cut off
    or damaged.
    """
    return _Reader(path).elements("[", "]")


def stream_object(path: Path) -> Iterator[Element]:
    """The members of the JSON object in ``path``; raises like :func:`stream_list`."""
    return _Reader(path).elements("{", "}")


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._at = 0  # next character of the text
        self._byte = 0  # byte of the file where that character begins
        self._number = 1

    def elements(self, opening: str, closing: str) -> Iterator[Element]:
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise UserError(f"{self._path}: cannot be read ({error.strerror or error})") from error
        with self._file:
            self._decode = codecs.getincrementaldecoder("utf-8")()
            if self._peek() != opening:
                kind = "list" if opening == "[" else "object"
                raise UserError(f"{self._path}: begins with {self._peek()!r}, expected a JSON {kind}")
            self._skip()
            if self._peek() == closing:
                return
            while True:
                key = self._member_name() if opening == "{" else ""
                yield self._element(key)
                separator = self._peek()
                if separator == closing:
                    return
                if separator != ",":
                    raise self._damage(f"found {separator!r}, expected ',' or {closing!r}")
                self._skip()
                self._number += 1

    def _member_name(self) -> str:
        name = self._element("").value
        if not isinstance(name, str) or self._peek() != ":":
            raise self._damage(f"found {name!r}, expected a member's name and ':'")
        self._skip()
        return name

    def _element(self, key: str) -> Element:
        """The JSON value that begins at the next character that is not blank."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MAX_ELEMENT_CHARACTERS or not self._more():
                    raise self._damage(error.msg) from error
                continue
            # A number may go on in the next block; anything else is complete.
            if end < len(self._text) or not self._more():
                break
        taken = self._text[self._at : end]
        element = Element(self._number, key, value, self._byte, _bytes(taken))
        self._at, self._byte = end, self._byte + element.size
        return element

    def _peek(self) -> str:
        """The next character that is not blank; the end of the file is an error."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._skip()
            if not self._more():
                raise self._damage("the file ends")

    def _skip(self) -> None:
        """Pass one character, which is a blank or punctuation and so one byte."""
        self._at += 1
        self._byte += 1

    def _more(self) -> bool:
        """Read another block; False at the end of the file."""
        raw = self._file.read(BLOCK_BYTES)
        try:
            text = self._decode.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise self._damage(f"not UTF-8 ({error.reason})") from error
        self._text = self._text[self._at :] + text
        self._at = 0
        return bool(raw)

    def _damage(self, what: str) -> UserError:
        return UserError(
            f"{self._path}: {what} in element {self._number} at byte {self._byte}; the file is cut off or "
            "damaged: fetch it again and compare its size with the source's"
        )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())

"""BM25 search that ranks as Lucene with Anserini's defaults does, without Java.

Every (term, document) pair's score is computed once, when the index is built, and kept term by term; a query adds
up the lists of its terms. Documents are streamed in and only numbers are kept.

Reproduced from Lucene 9: document lengths are rounded to what fits into one byte, scores are float32, equal scores
are ordered by document id. Without that rounding of lengths other products come first (docs/webshop.md).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from starpo.environments.webshop.analysis import terms, terms_of_word, words

#: Anserini's BM25 parameters: saturation of repeated terms and weight of the document's length.
K1: Final = 0.9
B: Final = 0.4
#: Tokens gathered before they are counted: bounds the memory of building (some 100 bytes a token for a moment).
CHUNK_TOKENS: Final = 1 << 22


def _rounded_lengths() -> NDArray[np.int64]:
    """Lengths that Lucene can store in a byte: exact below 40, above with four significant bits, from 24 on."""
    exact = 24
    lengths = list(range(exact))
    for code in range(256 - exact):
        mantissa, exponent = code & 7, code >> 3
        lengths.append(exact + (mantissa if exponent == 0 else (mantissa | 8) << (exponent - 1)))
    return np.array(lengths, dtype=np.int64)


_LENGTHS: Final = _rounded_lengths()


@dataclass(frozen=True)
class _Chunk:
    """Counted tokens of consecutive documents, sorted by term and, within a term, by document."""

    terms: NDArray[np.int32]
    documents: NDArray[np.int32]
    counts: NDArray[np.uint16]  # occurrences of the term in the document


class IndexBuilder:
    """Takes documents one by one; ``build`` makes the index."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._word_terms: dict[str, tuple[int, ...]] = {}
        self._tokens = array("i")
        self._lengths = array("i")
        self._first = 0  # first document of the chunk being gathered
        self._chunks: list[_Chunk] = []

    def add(self, text: str) -> None:
        """Append a document, which gets the next number."""
        known = self._word_terms
        tokens: list[int] = []
        for word in words(text):
            numbers = known.get(word)
            if numbers is None:
                numbers = known[word] = tuple(
                    self._numbers.setdefault(term, len(self._numbers)) for term in terms_of_word(word)
                )
            tokens += numbers
        self._tokens.extend(tokens)
        self._lengths.append(len(tokens))
        if len(self._tokens) >= CHUNK_TOKENS:
            self._count()

    def _count(self) -> None:
        """Turn the gathered tokens into (term, document, count) triples."""
        lengths = np.frombuffer(self._lengths, dtype=np.int32)[self._first :]
        tokens = np.array(self._tokens, dtype=np.int64)
        documents = np.repeat(np.arange(self._first, self._first + len(lengths)), lengths)
        keys, counts = np.unique(tokens << 32 | documents, return_counts=True)
        self._chunks.append(
            _Chunk(
                (keys >> 32).astype(np.int32),
                (keys & 0xFFFFFFFF).astype(np.int32),
                np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16),
            )
        )
        self._first += len(lengths)
        self._tokens = array("i")

    def build(self, ids: Sequence[str]) -> SearchIndex:
        """The index; ``ids`` are the documents' names, which order equal scores. The builder is used up."""
        self._word_terms.clear()
        self._count()
        lengths = np.array(self._lengths, dtype=np.int64)
        size = len(self._numbers)
        frequency = np.zeros(size, dtype=np.int64)
        for chunk in self._chunks:
            frequency += np.bincount(chunk.terms, minlength=size)
        starts = np.concatenate(([0], np.cumsum(frequency)))
        documents = np.empty(starts[-1], dtype=np.int32)
        scores = np.empty(starts[-1], dtype=np.float32)
        idf = np.log1p((len(lengths) - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        inverse = _inverse_norm(lengths)
        following = starts[:-1].copy()
        while self._chunks:
            chunk = self._chunks.pop(0)
            present, first, repeated = np.unique(chunk.terms, return_index=True, return_counts=True)
            within = np.arange(len(chunk.terms)) - np.repeat(first, repeated)
            at = following[chunk.terms] + within
            documents[at] = chunk.documents
            weight = idf[chunk.terms]
            scores[at] = weight - weight / (1 + chunk.counts.astype(np.float32) * inverse[chunk.documents])
            following[present] += repeated
        ranks = np.empty(len(ids), dtype=np.int32)
        ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.int32)
        return SearchIndex(self._numbers, starts, documents, scores, ranks)


def _inverse_norm(lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """float32 [documents]: 1 / (k1 (1 - b + b length / mean length)), with the length as Lucene stores it."""
    if not len(lengths):
        return np.zeros(0, dtype=np.float32)
    mean = np.float32(lengths.mean())
    stored = _LENGTHS[np.searchsorted(_LENGTHS, lengths, side="right") - 1].astype(np.float32)
    if not mean:
        return np.zeros(len(lengths), dtype=np.float32)
    one, k1, b = np.float32(1), np.float32(K1), np.float32(B)
    return np.asarray(one / (k1 * ((one - b) + b * stored / mean)), dtype=np.float32)


@dataclass(frozen=True)
class SearchIndex:
    """Scores of all (term, document) pairs, term by term."""

    numbers: dict[str, int]
    """Number of each term."""
    starts: NDArray[np.int64]
    """[terms + 1]: term t owns ``documents`` and ``scores`` from starts[t] to starts[t + 1]."""
    documents: NDArray[np.int32]
    """Documents that hold the term, ascending."""
    scores: NDArray[np.float32]
    """What the term adds to the document's score."""
    ranks: NDArray[np.int32]
    """[documents]: position of each document's id in alphabetical order."""

    def top(self, query: str, limit: int) -> list[tuple[int, float]]:
        """The best ``limit`` documents as (number, score), best first; only those with a term of ``query``."""
        numbers = [self.numbers[term] for term in terms(query) if term in self.numbers]
        if not numbers:
            return []
        pieces = [slice(self.starts[number], self.starts[number + 1]) for number in numbers]
        # A repeated word counts as often as it is written, as in Lucene.
        found = np.concatenate([self.documents[piece] for piece in pieces])
        gained = np.concatenate([self.scores[piece] for piece in pieces])
        total = np.bincount(found, weights=gained, minlength=1).astype(np.float32)
        candidates = np.flatnonzero(total)
        if len(candidates) > limit:
            least = np.partition(total[candidates], -limit)[-limit]
            candidates = candidates[total[candidates] >= least]
        order = np.lexsort((self.ranks[candidates], -total[candidates]))[:limit]
        return [(int(each), float(total[each])) for each in candidates[order]]

    def holding(self, any_of: Iterable[str]) -> list[int]:
        """Documents that hold a term of at least one of these words, ascending."""
        numbers = {self.numbers[term] for word in any_of for term in terms(word) if term in self.numbers}
        pieces = [self.documents[self.starts[number] : self.starts[number + 1]] for number in numbers]
        return [int(each) for each in np.unique(np.concatenate(pieces))] if pieces else []

    @property
    def nbytes(self) -> int:
        """Bytes of the number arrays, without the dictionary of terms."""
        return sum(each.nbytes for each in (self.starts, self.documents, self.scores, self.ranks))

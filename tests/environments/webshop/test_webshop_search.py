"""The search engine: Lucene's recorded rankings, and an independent engine where it can be compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.webshop import search
from starpo.environments.webshop.analysis import MAX_WORD, STOP_WORDS, terms, words
from starpo.environments.webshop.search import K1, B, IndexBuilder

WORDS = "red oak table lamp the soft chairs running 5.5 usb-c"
texts = st.lists(st.sampled_from(WORDS.split()), max_size=30)


def index_of(documents, ids=None):
    builder = IndexBuilder()
    for text in documents:
        builder.add(text)
    return builder.build(ids or [f"{at:05d}" for at in range(len(documents))])


def test_every_recorded_analysis_is_reproduced(golden):
    for case in golden("webshop_bm25.json")["analyzed"]:
        assert terms(case["text"]) == case["terms"]


def test_every_recorded_ranking_is_reproduced_to_the_last_hit(golden):
    data = golden("webshop_bm25.json")
    ids = [each["id"] for each in data["docs"]]
    index = index_of([each["contents"] for each in data["docs"]], ids)
    for case in data["searches"]:
        hits = index.top(case["query"], data["meta"]["k"])
        assert [ids[number] for number, _ in hits] == [name for name, _ in case["hits"]], case["query"]
        for (_, ours), (_, theirs) in zip(hits, case["hits"], strict=True):
            # Anserini prints four decimals and moves ties apart by 0.000001 each.
            assert math.floor(ours * 10_000 + 0.5) / 10_000 == pytest.approx(theirs, abs=6e-5)


@given(documents=st.lists(texts.map(" ".join), min_size=3, max_size=12), query=texts.map(" ".join))
def test_scores_equal_bm25s_where_lucene_stores_lengths_exactly(documents, query):
    bm25s = pytest.importorskip("bm25s")
    if not terms(query) or not any(terms(each) for each in documents):
        return
    theirs = bm25s.BM25(k1=K1, b=B, method="lucene")
    theirs.index([terms(each) for each in documents], show_progress=False)
    known = [each for each in terms(query) if each in theirs.vocab_dict]
    expected = theirs.get_scores(known) if known else np.zeros(len(documents))
    found = dict(index_of(documents).top(query, len(documents)))
    for number, score in enumerate(expected):
        assert found.get(number, 0.0) == pytest.approx(score, rel=1e-5, abs=1e-6)


def test_equal_scores_come_in_the_order_of_ids_and_only_hits_come():
    index = index_of(["red mug", "red mug", "blue mug", "red mug"], ["C", "A", "D", "B"])
    assert [number for number, _ in index.top("red", 10)] == [1, 3, 0]
    assert [number for number, _ in index.top("red", 2)] == [1, 3]
    assert index.top("green", 10) == index.top("the", 10) == index.top("", 10) == []
    assert index.holding(["blue", "green"]) == [2]


def test_an_index_built_in_many_chunks_is_the_same(monkeypatch):
    documents = [
        f"{colour} {thing} {n % 7}" for n, colour in enumerate(("red", "blue") * 40) for thing in "ab"
    ]
    whole = index_of(documents)
    monkeypatch.setattr(search, "CHUNK_TOKENS", 5)
    pieces = index_of(documents)
    assert np.array_equal(whole.documents, pieces.documents)
    assert np.array_equal(whole.scores, pieces.scores)
    assert whole.top("red 3", 50) == pieces.top("red 3", 50)


def test_an_empty_catalogue_finds_nothing():
    assert index_of([]).top("mug", 5) == []
    assert index_of(["", "the"]).top("mug", 5) == []


@given(st.text(max_size=200))
def test_any_text_has_an_analysis_without_stop_words_and_the_patterns_agree(text):
    assert not set(words(text)) & {""}
    assert all(term and term not in {"the", "and", "with"} for term in terms(text))
    ascii_text = text.encode("ascii", "ignore").decode()
    # A leading accented word forces the general pattern, which must read the rest alike.
    assert words(f"é {ascii_text}")[1:] == words(ascii_text)


def test_word_breaks_follow_lucene():
    assert words("Men's 5.5\" USB-C 1,000 u.s.a 20x20 a.5") == [
        "men's", "5.5", "usb", "c", "1,000", "u.s.a", "20x20", "a", "5",
    ]  # fmt: skip
    assert words("サイズ 青色") == ["サイズ", "青", "色"]
    assert terms("The women's caresses and ponies' relational hopping") == [
        "women", "caress", "poni", "relat", "hop",
    ]  # fmt: skip
    assert [len(term) for term in terms("9" * (MAX_WORD + 3))] == [MAX_WORD, 3]
    assert len(STOP_WORDS) == 33

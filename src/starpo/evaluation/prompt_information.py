"""Can one tell from a thought which prompt it answers? An estimate of I(prompt; thought), in nats.

A policy whose thoughts say the same whatever it is asked has none, however varied they are: the entropy of thoughts
does not show that, the mutual information does (RAGEN-2, arXiv 2604.06268).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

MOST_PROMPTS = 256
"""Prompts that are told apart: of more, the first in order of their numbers; bounds time and memory."""

_PRIOR_WORDS = 1.0
"""Weight of the words of all thoughts in each prompt's word frequencies, in words."""

_SHARPNESS = (0.0, *(2.0**power for power in range(-6, 8)))
"""Exponents that are tried: words are no independent draws, so the classifier's own odds are too bold or too shy."""


def prompt_information(thoughts: Sequence[Sequence[str]], prompts: Sequence[int]) -> dict[str, float]:
    """How well a classifier that counts words tells the prompt of each thought from the thoughts of all others.

    Thought z, the n-th of its prompt, holds word w n_w times. The thoughts of prompt x, without its own n-th one, hold
    w c_w(x) times among c(x) words, and p_w is the share of w in all thoughts. With

        q(x | z) ∝ (prod_w ((c_w(x) + p_w) / (c(x) + 1)) ^ n_w) ^ s

    the information is log G + mean log q(prompt of z | z), every one of the G prompts weighing alike. For a fixed s
    this is in expectation a lower bound on the mutual information (Barber and Agakov, 2003): what the order of words
    says, and words seen once, do not count. s is the best of a few fixed values for these thoughts, 0 among them, which
    makes the number at least 0 and, of N thoughts that say nothing, about 1 / (2 N) too high.

    Args:
        thoughts: words of each; an empty one says nothing.
        prompts: number of the prompt that each answers.

    Returns:
        ``thought_prompt_information`` in nats, between 0 and log G; ``thought_prompt_recognised_share``, the share of
        thoughts whose own prompt is the likeliest (a tie counts by halves, thirds and so on), and
        ``thought_prompt_chance``, 1 / G. Empty with fewer than two prompts that have two thoughts.
    """
    asked = np.asarray(prompts, dtype=np.int64)
    numbers, counts = np.unique(asked, return_counts=True)
    several = numbers[counts >= 2][:MOST_PROMPTS]
    if len(several) < 2:
        return {}
    kept = np.flatnonzero(np.isin(asked, several))
    owner = np.searchsorted(several, asked[kept])
    scores = _log_likelihoods(_counted([thoughts[at] for at in kept]), owner, len(several))
    rows = np.arange(len(owner))
    # Rounding makes no difference between prompts.
    likeliest = scores > scores.max(axis=1, keepdims=True) - 1e-9
    weights = 1.0 / (len(several) * np.bincount(owner))[owner]
    log_q = max(
        float(weights @ (scaled[rows, owner] - np.logaddexp.reduce(scaled, axis=1)))
        for scaled in (sharpness * scores for sharpness in _SHARPNESS)
    )
    return {
        "thought_prompt_information": max(0.0, float(np.log(len(several))) + log_q),
        "thought_prompt_recognised_share": float(weights @ (likeliest[rows, owner] / likeliest.sum(axis=1))),
        "thought_prompt_chance": 1.0 / len(several),
    }


def _counted(thoughts: Sequence[Sequence[str]]) -> csr_array:
    """[thoughts, different words], how often each word is in each thought."""
    known: dict[str, int] = {}
    columns = [known.setdefault(word, len(known)) for words in thoughts for word in words]
    starts = np.cumsum([0, *map(len, thoughts)])
    counted = csr_array(
        (np.ones(len(columns)), np.array(columns, dtype=np.int64), starts),
        shape=(len(thoughts), max(1, len(known))),
    )
    counted.sum_duplicates()
    return counted


def _log_likelihoods(words: csr_array, owner: NDArray[np.int64], prompts: int) -> NDArray[np.float64]:
    """[thoughts, prompts], log-probability of a thought's words in a prompt's other thoughts.

    The n-th thoughts of all prompts are judged together by the others, so that no prompt is known from more.
    """
    everywhere = words.sum(axis=0)
    # A word that occurs nowhere only fills the table where all thoughts are empty.
    prior = np.maximum(_PRIOR_WORDS * everywhere / max(1.0, everywhere.sum()), np.finfo(float).tiny)
    place = _number_within(owner)
    scores = np.zeros((len(owner), prompts))
    for number in range(int(place.max()) + 1):
        judged, others = np.flatnonzero(place == number), np.flatnonzero(place != number)
        membership = csr_array(
            (np.ones(len(others)), (owner[others], np.arange(len(others)))), shape=(prompts, len(others))
        )
        held = (membership @ words[others]).toarray()
        frequencies = (held + prior) / (held.sum(axis=1, keepdims=True) + _PRIOR_WORDS)
        scores[judged] = words[judged] @ np.log(frequencies).T
    return scores


def _number_within(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each element, how many equal ones stand before it.

    >>> _number_within(np.array([3, 5, 3, 3])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], owner[order], side="left")
    numbers = np.empty(len(owner), dtype=np.int64)
    numbers[order] = np.arange(len(owner)) - starts
    return numbers

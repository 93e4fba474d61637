"""Matching sentences of two texts: the same content in partly different words.

Sentences are compared by the cosine of their words, each weighted by its inverse sentence frequency
in the two texts (Sanchez-Perez, Sidorov and Gelbukh, "A winning approach to text alignment for text
reuse detection at PAN 2014", section 2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from encoder.arrays import Bool, Float64, Int64
from encoder.comparison.words import Words, word_range

LONGEST_SENTENCE = 40  # words; longer ones, and text without punctuation, are cut
_MOST_PAIRS = 2_000_000  # of sentences that share a word; the most frequent words are dropped first
_MOST_CELLS = 16_000_000


class Link(NamedTuple):
    """Words `left` of one text and words `right` of the other, as (first, after the last)."""

    left: tuple[int, int]
    right: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of a text as ranges of words: Int64[N] each, in order."""

    first: Int64
    last: Int64

    def __len__(self) -> int:
        return len(self.first)


def cut_sentences(spans: Sequence[tuple[int, int]], words: Words) -> Sentences:
    """Return the sentences of a text as ranges of words, long ones cut into equal pieces."""
    ranges: list[tuple[int, int]] = []
    for span in spans:
        first, last = word_range(words, *span)
        pieces = -(-(last - first) // LONGEST_SENTENCE)
        cuts = [first + (last - first) * cut // pieces for cut in range(pieces + 1) if pieces]
        ranges.extend(pairwise(cuts))
    table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    return Sentences(table[:, 0], table[:, 1])


def match_sentences(
    left: tuple[Words, Sentences],
    right: tuple[Words, Sentences],
    *,
    least_cosine: float,
    least_shared: int,
) -> list[Link]:
    """Link each sentence to the most similar one of the other text.

    Args:
        left: words of one text, with code 0 for those to ignore; its sentences.
        right: of the other.
        least_cosine: of the weighted words of two linked sentences.
        least_shared: number of different words that they share.

    Returns:
        Links in the order of the left text; a sentence can be the best of several others.
    """
    ours, theirs = _entries(*left), _entries(*right)
    if not len(ours) or not len(theirs):
        return []
    weights = _weights(ours, theirs, len(left[1]) + len(right[1]))
    pairs, cosines, shared = _join(
        _Weighted.of(ours, weights[: len(ours)], len(left[1])),
        _Weighted.of(theirs, weights[len(ours) :], len(right[1])),
        len(right[1]),
    )
    good = (cosines >= least_cosine) & (shared >= least_shared)
    rows, columns = np.divmod(pairs[good], len(right[1]))
    best = _best(rows, cosines[good]) | _best(columns, cosines[good])
    return [
        Link(
            (int(left[1].first[row]), int(left[1].last[row])),
            (int(right[1].first[column]), int(right[1].last[column])),
        )
        for row, column in zip(rows[best].tolist(), columns[best].tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Words in sentences in the order of their codes, with weights of unit norm a sentence."""

    codes: Int64
    sentences: Int64
    weights: Float64

    @classmethod
    def of(cls, entries: Int64, weights: Float64, sentences: int) -> "_Weighted":
        norms = np.sqrt(np.bincount(entries[:, 1], weights**2, sentences))
        unit = weights / np.maximum(norms[entries[:, 1]], 1e-12)
        return cls(entries[:, 0], entries[:, 1], unit)


def _entries(words: Words, sentences: Sentences) -> Int64:
    """Return [E, 2]: code and sentence of each different word of each sentence, by code."""
    lengths = sentences.last - sentences.first
    owner = np.repeat(np.arange(len(sentences)), lengths)
    places = _ranges(sentences.first, lengths)
    table: Int64 = np.stack([words.codes[places], owner], axis=1)
    table = table[table[:, 0] != 0]
    if not len(table):
        return table
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    fresh = np.ones(len(table), dtype=bool)
    fresh[1:] = (table[1:] != table[:-1]).any(axis=1)
    found: Int64 = table[fresh]
    return found


def _ranges(starts: Int64, lengths: Int64) -> Int64:
    """Return the numbers of all ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Int64 = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return numbers


def _weights(ours: Int64, theirs: Int64, sentences: int) -> Float64:
    """Return the inverse sentence frequency of each entry of both texts."""
    codes = np.concatenate([ours[:, 0], theirs[:, 0]])
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    weights: Float64 = np.log((sentences + 1) / counts)[inverse]
    return weights


def _join(left: _Weighted, right: _Weighted, columns: int) -> tuple[Int64, Float64, Int64]:
    """Return the pairs of sentences that share words, as row * columns + column; cosine; how many.

    The most frequent words, which weigh least, are left out where there would be too many pairs.
    """
    first = np.searchsorted(right.codes, left.codes, side="left")
    counts = np.searchsorted(right.codes, left.codes, side="right") - first
    cheapest = np.argsort(counts, kind="stable")
    kept = np.sort(cheapest[np.cumsum(counts[cheapest]) <= _MOST_PAIRS])
    counts = counts[kept]
    entries = np.repeat(kept, counts)
    others = _ranges(first[kept], counts)
    keys = left.sentences[entries] * columns + right.sentences[others]
    products = left.weights[entries] * right.weights[others]
    pairs, inverse = _numbered(keys)
    shared = np.bincount(inverse).astype(np.int64, copy=False)
    return pairs, np.bincount(inverse, products).astype(np.float64, copy=False), shared


def _numbered(keys: Int64) -> tuple[Int64, Int64]:
    if len(keys) and int(keys.max()) < _MOST_CELLS:  # counting is many times faster than sorting
        present = np.zeros(int(keys.max()) + 1, dtype=bool)
        present[keys] = True
        return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]
    pairs, inverse = np.unique(keys, return_inverse=True)
    return pairs, inverse


def _best(group: Int64, values: Float64) -> Bool:
    """Return whether each value is the greatest of its group, the first of equal ones."""
    order = np.lexsort((-values, group))
    leading = np.ones(len(group), dtype=bool)
    leading[1:] = group[order][1:] != group[order][:-1]
    best = np.zeros(len(group), dtype=bool)
    best[order[leading]] = True
    return best

"""A query in a segment: what its terms give to the score of each document.

A term that few documents of the segment have is read by term, as these documents are known. So are
the heaviest terms of the query, since they say which documents are worth a score. All others many
documents have, and they are read by document, only of the documents that are scored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Bool, Float32, Float64, Int64, UInt32
from index.lexical.frequencies import Frequencies
from index.lexical.frequent_terms import FrequentTerms, runs
from index.lexical.scoring import LexicalQuery, heaviest_terms
from index.lexical.segment import Segment

# Arrays of so many terms of documents fit the cache of a core, and need no new memory each time.
_ENTRIES_AT_ONCE = 2**16
_POSTINGS_AT_ONCE = 2**18


@dataclass(frozen=True, slots=True, eq=False)
class AskedTerms:
    """The terms of a query as segments read them.

    Attributes:
        term_ids: UInt32[U], ascending.
        weights: Float32[U], by which the root of the count in a document is multiplied.
        newer: Float32[U], by how much the squares of the frequencies grew since norms were
            computed; None where none did.
        heavy: Bool[U], the terms that fetch candidates.
    """

    term_ids: UInt32
    weights: Float32
    newer: Float32 | None
    heavy: Bool


@dataclass(frozen=True, slots=True, eq=False)
class SegmentDots:
    """A query in a segment of N documents, F frequent terms of which are read by document.

    Attributes:
        segment: that was read.
        dots: Float64[N], what the terms that are read by term give to the dot product.
        newer: Float64[N], what they add to the squared norm; None for nothing.
        weights: Float32[F], of the other terms; 0 for those the query has not.
        newer_squares: Float32[F], the same for the squared norm.
    """

    segment: Segment
    dots: Float64
    newer: Float64 | None
    weights: Float32
    newer_squares: Float32 | None

    def of(self, rows: Int64) -> tuple[Float64, Float64]:
        """Return dot products and additions to the squared norms of documents, both Float64[K].

        Args:
            rows: Int64[K], of the documents.
        """
        dots = self.dots[rows]
        newer = np.zeros(len(rows)) if self.newer is None else self.newer[rows]
        if not self.weights.any() and self.newer_squares is None:
            return dots, newer
        for part, places, counts, starts in _parts(self.segment.frequent, rows):
            dots[part] += np.add.reduceat(self.weights.take(places) * _roots(counts), starts)
            if self.newer_squares is not None:
                newer[part] += np.add.reduceat(self.newer_squares.take(places) * counts, starts)
        return dots, newer


def ask(query: LexicalQuery, frequencies: Frequencies) -> AskedTerms:
    """Make a query ready to be read, where norms are computed by these frequencies."""
    order = np.argsort(query.term_ids)
    heavy = np.zeros(len(query), dtype=np.bool_)
    heavy[heaviest_terms(query)] = True
    newer = np.square(query.idf) - np.square(frequencies.idf(query.term_ids))
    return AskedTerms(
        query.term_ids[order].astype(np.uint32),
        (query.weights * query.idf)[order],
        newer[order] if newer.any() else None,
        heavy[order],
    )


def read_segment(segment: Segment, asked: AskedTerms) -> SegmentDots:
    """Read the terms of a query that are read by term."""
    at, own = segment.locate(asked.term_ids)
    ends = segment.ends.take(at).astype(np.int64)
    starts = np.where(at > 0, segment.ends.take(at - 1), 0).astype(np.int64)
    lengths = ends - starts
    places, found = segment.frequent.locate(asked.term_ids[own], lengths)
    light = ~asked.heavy[own[found]]
    places, found = places[light], found[light]
    by_term = np.ones(len(own), dtype=np.bool_)
    by_term[found] = False
    found, size = own[found], len(segment.frequent.term_ids)
    weights = _spread(asked.weights[found], places, size)
    own, starts, lengths = own[by_term], starts[by_term], lengths[by_term]
    dots = np.zeros(len(segment))
    newer = newer_squares = None
    if asked.newer is not None:
        newer, newer_squares = np.zeros(len(segment)), _spread(asked.newer[found], places, size)
    for some in _bounded(lengths, _POSTINGS_AT_ONCE):
        entries = runs(starts[some], lengths[some])
        rows, counts = segment.rows.take(entries), segment.counts.take(entries)
        terms, numbers = own[some], lengths[some]
        dots += _sums(rows, asked.weights[terms], numbers, _roots(counts), len(segment))
        if asked.newer is not None and newer is not None:
            newer += _sums(rows, asked.newer[terms], numbers, counts, len(segment))
    return SegmentDots(segment, dots, newer, weights, newer_squares)


def _sums(
    rows: UInt32, values: Float32, lengths: Int64, factors: Float32 | NDArray[np.uint16], size: int
) -> Float64:
    """Sum a value of each term times a factor of each document that has it, by document."""
    products = np.repeat(values.astype(np.float64), lengths)
    products *= factors
    # Without postings it counts, in integers.
    return np.bincount(rows, products, minlength=size).astype(np.float64, copy=False)


def _roots(counts: NDArray[np.uint16]) -> Float32:
    return np.sqrt(counts, dtype=np.float32)


def _spread(values: Float32, places: Int64, size: int) -> Float32:
    spread = np.zeros(size, dtype=np.float32)
    spread[places] = values
    return spread


def _parts(
    frequent: FrequentTerms, rows: Int64
) -> Iterator[tuple[Int64, NDArray[np.uint16], NDArray[np.uint16], Int64]]:
    """Yield the frequent terms of documents, a bounded number at once.

    Yields:
        Which of the documents they are; places and counts of their terms, one document after
        another; where those of each document start.
    """
    ends = frequent.ends.take(rows)
    starts = np.where(rows > 0, frequent.ends.take(rows - 1), 0)
    filled = np.flatnonzero(starts < ends)  # `reduceat` takes no empty part
    lengths = (ends - starts)[filled]
    for some in _bounded(lengths, _ENTRIES_AT_ONCE):
        chosen = filled[some]
        own = list(map(slice, starts[chosen].tolist(), ends[chosen].tolist()))
        yield (
            chosen,
            np.concatenate([frequent.places[one] for one in own]),
            np.concatenate([frequent.counts[one] for one in own]),
            np.cumsum(lengths[some]) - lengths[some],
        )


def _bounded(lengths: Int64, size: int) -> Iterator[slice]:
    """Divide runs of these lengths [K] into parts of about a size together."""
    part = np.cumsum(lengths) // size
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(lengths)]
    for start, end in pairwise(bounds):
        if start < end:
            yield slice(start, end)

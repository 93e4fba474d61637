"""The terms that many documents of a segment have, by document, in few bytes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Int64, UInt32
from index.lexical.tables import JoinedTerms

FREQUENT = 128  # documents; terms of fewer are read by term
MOST_FREQUENT = 2**16  # terms, as many as a UInt16 has values


@dataclass(frozen=True, slots=True, eq=False)
class FrequentTerms:
    """The F most frequent terms of a segment, K times in its N documents.

    Attributes:
        term_ids: UInt32[F], ascending.
        places: UInt16[K], where in `term_ids` those of each document are, one document after
            another.
        counts: UInt16[K], how often the document has each of them.
        ends: Int64[N], where those of each document end.
    """

    term_ids: UInt32
    places: NDArray[np.uint16]
    counts: NDArray[np.uint16]
    ends: Int64

    def locate(self, term_ids: UInt32, numbers: Int64) -> tuple[Int64, Int64]:
        """Return where terms of the segment [V] are in `term_ids`, and which of them these are.

        Args:
            term_ids: of the terms, ascending.
            numbers: how many documents of the segment have each.
        """
        many = np.flatnonzero(numbers > FREQUENT)
        places, own = locate(self.term_ids, term_ids[many])
        return places, many[own]


def locate(term_ids: UInt32, asked: UInt32) -> tuple[Int64, Int64]:
    """Return where the asked terms [U] are among all [V], and which of the asked these are.

    Both ascend, with different elements.
    """
    if not len(term_ids):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(term_ids, asked), len(term_ids) - 1)
    own = np.flatnonzero(term_ids.take(at) == asked)
    return at[own], own


def find_frequent(
    documents: JoinedTerms, term_ids: UInt32, entries: UInt32, ends: Int64
) -> FrequentTerms:
    """Find the frequent terms of documents.

    Args:
        documents: the terms of each.
        term_ids: UInt32[U], all different terms, ascending.
        entries: UInt32[M], where in `documents` each term is, one term after another.
        ends: Int64[U], where those of each term end.
    """
    if len(documents.vector_ids) <= FREQUENT:  # as most segments of a single change
        none, nowhere = np.zeros(0, dtype=np.uint16), np.zeros(len(documents.ends), dtype=np.int64)
        return FrequentTerms(term_ids[:0], none, none, nowhere)
    numbers = np.diff(ends, prepend=0)
    chosen = np.flatnonzero(numbers > FREQUENT)
    if len(chosen) > MOST_FREQUENT:
        order = np.argpartition(numbers[chosen], len(chosen) - MOST_FREQUENT)
        chosen = np.sort(chosen[order[len(chosen) - MOST_FREQUENT :]])
    places = np.zeros(len(entries), dtype=np.uint16)
    frequent = np.zeros(len(entries), dtype=np.bool_)
    numbers = numbers[chosen]
    own = entries[runs(ends[chosen] - numbers, numbers)]
    places[own] = np.repeat(np.arange(len(chosen)), numbers)
    frequent[own] = True
    return FrequentTerms(
        term_ids[chosen],
        places[frequent],
        documents.counts[frequent],
        np.append(0, np.cumsum(frequent))[documents.ends],
    )


def runs(starts: Int64, lengths: Int64) -> Int64:
    """Return the numbers from each start on, as many as the run is long, run after run."""
    before = np.cumsum(lengths) - lengths
    numbers: Int64 = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers

"""What searches read of the lexical index: segments as they are at one moment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Bool, Float64, Int64
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies
from index.lexical.scoring import squared_norms
from index.lexical.segment import Segment, join_documents, take_documents
from index.lexical.tables import NO_TERMS, DocumentTerms, JoinedTerms
from index.lexical.term_counts import TermCounts

_DOCUMENTS_A_CALL = 500


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, and what is known of its N documents.

    Attributes:
        segment: never changes.
        living: Bool[N], which of its documents are still there.
        squares: Float64[N], squared norms by the frequencies of the view; NaN until they are
            needed. Readers fill them in, each with the same value.
        file: the name of the file that has the segment, if there is one.
    """

    segment: Segment
    living: Bool
    squares: Float64
    file: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All documents as of `changes` of the store. A document is living in one segment at most.

    Attributes:
        segments: in the order in which they were made.
        terms: how many documents have each term. It is shared by all views and follows the newest.
        frequencies: the same at an earlier moment, by which norms are computed.
        number: how many documents there are.
        changes: of the store.
        identity: of the tables.
        damaged: documents that are not in a segment, as their terms cannot be read.
    """

    segments: tuple[LiveSegment, ...]
    terms: TermCounts
    frequencies: Frequencies
    number: int
    changes: int
    identity: str
    damaged: frozenset[int] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether all documents are in a segment, or known to be damaged."""
        living = sum(int(one.living.sum()) for one in self.segments)
        return living + len(self.damaged) == self.number

    def find(self, vector_ids: Int64) -> Iterator[tuple[LiveSegment, Int64, Int64]]:
        """Yield segments with the living documents of theirs among the given ids [K].

        Yields:
            The segment, positions [F] in the given ids, and rows [F] of the segment.
        """
        for one in self.segments:
            positions, rows = one.segment.find(vector_ids)
            kept = one.living[rows]
            if kept.any():
                yield one, positions[kept], rows[kept]

    def documents(self, vector_ids: Int64) -> tuple[Int64, JoinedTerms]:
        """Return those of these ids [K] that are living, as positions [F], and their terms."""
        found = list(self.find(vector_ids))
        positions = [np.zeros(0, dtype=np.int64), *(positions for _, positions, _ in found)]
        joined = join_documents((one.segment.documents, rows) for one, _, rows in found)
        return np.concatenate(positions), joined

    def squared_norms(self, vector_ids: Int64) -> Float64:
        """Return the squared norms Float64[F] of the documents that `documents` returns."""
        squares = [np.zeros(0)]
        for one, _, rows in self.find(vector_ids):
            fill_squares(one, rows[np.isnan(one.squares[rows])], self.frequencies)
            squares.append(one.squares[rows])
        return np.concatenate(squares)

    def terms_of(self, vector_id: int) -> DocumentTerms:
        """Return the terms of one document; none if it is not there."""
        for one, _, rows in self.find(np.array([vector_id], dtype=np.int64)):
            return one.segment.terms_of(int(rows[0]))
        return NO_TERMS

    def best(self, term_ids: Int64, weights: Float64, k: int, among: IdSet | None) -> Int64:
        """Return the k documents with the greatest sums of the weights of the terms they have.

        Sums are divided by the root of the number of terms of the document, which its norm grows
        with: long documents would be preferred otherwise. Documents without any of the terms are
        not returned; of equal sums, lower ids come first.

        Args:
            term_ids: Int64[K].
            weights: Float64[K], above 0.
            k: how many.
            among: only these documents.

        Returns:
            Int64[N], N <= k, in any order.
        """
        ids, sums = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for one in self.segments:
            documents = one.segment.documents
            lengths = np.maximum(np.diff(documents.ends, prepend=0), 1)
            summed = one.segment.sum_weights(term_ids, weights) / np.sqrt(lengths)
            rows = np.flatnonzero(one.living & (summed > 0))
            own = documents.vector_ids[rows]
            if among is not None:
                kept = among.contains(own)
                own, rows = own[kept], rows[kept]
            ids.append(own)
            sums.append(summed[rows])
        return _greatest(np.concatenate(ids), np.concatenate(sums), k)

    def living_ids(self) -> Int64:
        """Return the ids of all documents, ascending."""
        own = (one.segment.documents.vector_ids[one.living] for one in self.segments)
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *own]))


def fresh_segment(segment: Segment) -> LiveSegment:
    """Return a segment all documents of which are living."""
    return LiveSegment(segment, np.ones(len(segment), dtype=np.bool_), no_squares(segment))


def no_squares(segment: Segment) -> Float64:
    """Return squared norms none of which is known."""
    return np.full(len(segment), np.nan)


def fill_squares(one: LiveSegment, rows: Int64, frequencies: Frequencies) -> None:
    """Compute the squared norms of these rows Int64[K] of a segment, in parts."""
    for start in range(0, len(rows), _DOCUMENTS_A_CALL):
        some = rows[start : start + _DOCUMENTS_A_CALL]
        documents = take_documents(one.segment.documents, some)
        one.squares[some] = squared_norms(documents, frequencies.idf)


def without_documents(
    segments: Sequence[LiveSegment], vector_ids: Int64
) -> tuple[list[LiveSegment], JoinedTerms]:
    """Return segments in which these documents are not living, and the terms that they had."""
    left: list[LiveSegment] = []
    removed = []
    for one in segments:
        _, rows = one.segment.find(vector_ids)
        rows = rows[one.living[rows]]
        if len(rows):
            living = one.living.copy()
            living[rows] = False
            removed.append((one.segment.documents, rows))
            left.append(replace(one, living=living))
        else:
            left.append(one)
    return left, join_documents(removed)


def _greatest(ids: Int64, sums: Float64, k: int) -> Int64:
    if len(ids) <= k:
        return ids
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = ids[sums > least], np.sort(ids[sums == least])
    return np.concatenate([above, equal[: k - len(above)]])

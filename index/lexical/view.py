"""What searches read of the lexical index: segments as they are at one moment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Float64, Int64
from index.id_set import IdSet
from index.lexical.segment import Segment, join_documents
from index.lexical.tables import NO_TERMS, DocumentTerms, JoinedTerms
from index.lexical.term_counts import TermCounts


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, and which of its documents are still there, Bool[N].

    `file` is the name of the file that has it, if there is one.
    """

    segment: Segment
    living: Bool
    file: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All documents as of `changes` of the store. A document is living in one segment at most.

    Attributes:
        segments: in the order in which they were made.
        terms: how many documents have each term. It is shared by all views and follows the newest.
        number: how many documents there are.
        changes: of the store.
        identity: of the tables.
        damaged: documents that are not in a segment, as their terms cannot be read.
    """

    segments: tuple[LiveSegment, ...]
    terms: TermCounts
    number: int
    changes: int
    identity: str
    damaged: frozenset[int] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether all documents are in a segment, or known to be damaged."""
        living = sum(int(one.living.sum()) for one in self.segments)
        return living + len(self.damaged) == self.number

    def find(self, vector_ids: Int64) -> Iterator[tuple[Segment, Int64, Int64]]:
        """Yield segments with the living documents of theirs among the given ids [K].

        Yields:
            The segment, positions [F] in the given ids, and rows [F] of the segment.
        """
        for one in self.segments:
            positions, rows = one.segment.find(vector_ids)
            kept = one.living[rows]
            if kept.any():
                yield one.segment, positions[kept], rows[kept]

    def documents(self, vector_ids: Int64) -> tuple[Int64, JoinedTerms]:
        """Return those of these ids [K] that are living, as positions [F], and their terms."""
        found = list(self.find(vector_ids))
        positions = [np.zeros(0, dtype=np.int64), *(positions for _, positions, _ in found)]
        joined = join_documents((segment.documents, rows) for segment, _, rows in found)
        return np.concatenate(positions), joined

    def terms_of(self, vector_id: int) -> DocumentTerms:
        """Return the terms of one document; none if it is not there."""
        for segment, _, rows in self.find(np.array([vector_id], dtype=np.int64)):
            return segment.terms_of(int(rows[0]))
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
            left.append(LiveSegment(one.segment, living, one.file))
        else:
            left.append(one)
    return left, join_documents(removed)


def _greatest(ids: Int64, sums: Float64, k: int) -> Int64:
    if len(ids) <= k:
        return ids
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = ids[sums > least], np.sort(ids[sums == least])
    return np.concatenate([above, equal[: k - len(above)]])

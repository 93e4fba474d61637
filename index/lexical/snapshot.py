"""What searches read of the lexical index: segments as they are at one moment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Bool, Float32, Float64, Int64, UInt32
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies, TermCounts
from index.lexical.scoring import inverse_document_frequencies, squared_norms
from index.lexical.segment import QueryReads, Segment, join_documents
from index.lexical.tables import NO_TERMS, DocumentTerms, JoinedTerms

_DOCUMENTS_A_CALL = 500
_LEAST_SQUARE = 1e-24  # of a norm
_NO_DOCUMENTS = join_documents([])


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of arrays.

    Attributes:
        name: of the file.
        sizes: of its arrays.
        checksum: CRC-32 of its content.
        removed: rows of a segment whose documents are not present.
    """

    name: str
    sizes: Sequence[int]
    checksum: int
    removed: Sequence[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, and what is known of its N documents.

    Attributes:
        segment: never changes.
        present: Bool[N], which of its documents are still there.
        squares: Float64[N], squared norms; NaN until they are needed. Readers fill them in, each
            with the same value.
        current: Bool[N], which of them are by the frequencies of the snapshot, not by earlier ones,
            which are near enough to choose candidates by.
        file: that has the segment, if there is one.
    """

    segment: Segment
    present: Bool
    squares: Float64
    current: Bool
    file: SegmentFile | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LexicalSnapshot:
    """All documents as of `changes` of the words. A document is present in one segment at most.

    Attributes:
        segments: in the order in which they were made.
        terms: how many documents have each term; shared by all snapshots, as of the newest.
        frequencies: the same at an earlier moment, by which norms are computed.
        number: how many documents there are.
        changes: of the words.
        identity: of their file.
    """

    segments: tuple[LiveSegment, ...]
    terms: TermCounts
    frequencies: Frequencies
    number: int
    changes: int
    identity: str

    def find(self, vector_ids: Int64) -> Iterator[tuple[LiveSegment, Int64, Int64]]:
        """Yield segments with the present documents of theirs among the given ids [K].

        Yields:
            The segment, positions [F] in the given ids, and rows [F] of the segment.
        """
        for live in self.segments:
            positions, rows = live.segment.find(vector_ids)
            kept = live.present[rows]
            if kept.any():
                yield live, positions[kept], rows[kept]

    def documents(self, vector_ids: Int64) -> tuple[Int64, JoinedTerms]:
        """Return those of these ids [K] that are present, as positions [F], and their terms."""
        found = list(self.find(vector_ids))
        positions = [np.zeros(0, dtype=np.int64), *(positions for _, positions, _ in found)]
        joined = join_documents((live.segment.documents, rows) for live, _, rows in found)
        return np.concatenate(positions), joined

    def scores(self, reads: QueryReads, vector_ids: Int64) -> Float32:
        """Return the cosine Float32[K] of a query with each document [K]; 0 for missing ones."""
        scores = np.zeros(len(vector_ids), dtype=np.float32)
        for live, positions, rows in self.find(vector_ids):
            dots = reads.of(live.segment).of(rows)
            self.fill_squares(live, rows[~live.current[rows]])
            norms = np.sqrt(np.maximum(live.squares[rows], _LEAST_SQUARE))
            scores[positions] = np.minimum(dots / norms, 1.0)
        return scores

    def terms_of(self, vector_id: int) -> DocumentTerms:
        """Return the terms of one document; none if it is not there."""
        for live, _, rows in self.find(np.array([vector_id], dtype=np.int64)):
            return live.segment.terms_of(int(rows[0]))
        return NO_TERMS

    def best(self, reads: QueryReads, k: int, among: IdSet | None) -> Int64:
        """Return the k documents with the highest cosines by the terms that are read by term.

        Those are the terms that few documents have, and the top others; norms may be by earlier
        frequencies. Documents without any of the terms are not returned; of equal cosines,
        lower ids come first.

        Returns:
            Int64[N], N <= k, in any order.
        """
        ids, cosines = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for live in self.segments:
            part = reads.of(live.segment)
            rows = np.flatnonzero(live.present & (part.dots > 0))
            candidates = live.segment.vector_ids[rows]
            if among is not None:
                kept = among.contains(candidates)
                candidates, rows = candidates[kept], rows[kept]
            self.fill_squares(live, rows[np.isnan(live.squares[rows])])
            ids.append(candidates)
            squares = np.maximum(live.squares[rows], _LEAST_SQUARE)
            cosines.append(part.dots[rows] / np.sqrt(squares))
        return _greatest(np.concatenate(ids), np.concatenate(cosines), k)

    def idf(self, term_ids: UInt32 | Int64) -> Float32:
        """Return the inverse document frequency [K] of term ids of this snapshot."""
        levels = self.terms.levels.take(term_ids)
        return inverse_document_frequencies(
            self.frequencies.of(term_ids), levels, self.frequencies.number
        )

    def fill_squares(self, live: LiveSegment, rows: Int64) -> None:
        """Compute the squared norms of these rows Int64[K] of a segment, in parts."""
        for start in range(0, len(rows), _DOCUMENTS_A_CALL):
            some = rows[start : start + _DOCUMENTS_A_CALL]
            documents = join_documents([(live.segment.documents, some)])
            live.squares[some] = squared_norms(documents, self.idf)
            live.current[some] = True

    def present_ids(self) -> Int64:
        """Return the ids of all documents, ascending."""
        present = (live.segment.vector_ids[live.present] for live in self.segments)
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *present]))


def fresh_segment(segment: Segment) -> LiveSegment:
    """Return a segment all documents of which are present, and whose norms are not known."""
    size = len(segment)
    none = np.zeros(size, dtype=np.bool_)
    return LiveSegment(segment, ~none, np.full(size, np.nan), none)


def outdated(live: LiveSegment) -> LiveSegment:
    """Return a segment whose norms are to be computed again, by other frequencies."""
    return replace(live, squares=live.squares.copy(), current=np.zeros_like(live.current))


def without_documents(
    segments: Sequence[LiveSegment], vector_ids: Int64
) -> tuple[list[LiveSegment], JoinedTerms]:
    """Return segments in which these documents are not present, and the terms that they had."""
    left: list[LiveSegment] = []
    removed = []
    if not len(vector_ids):
        return list(segments), _NO_DOCUMENTS
    for live in segments:
        _, rows = live.segment.find(vector_ids)
        rows = rows[live.present[rows]]
        if len(rows):
            present = live.present.copy()
            present[rows] = False
            removed.append((live.segment.documents, rows))
            left.append(replace(live, present=present))
        else:
            left.append(live)
    return left, join_documents(removed) if removed else _NO_DOCUMENTS


def _greatest(ids: Int64, sums: Float64, k: int) -> Int64:
    if len(ids) <= k:
        return ids
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = ids[sums > least], np.sort(ids[sums == least])
    return np.concatenate([above, equal[: k - len(above)]])

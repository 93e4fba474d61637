"""What searches read of the lexical index: segments as they are at one moment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Bool, Float32, Float64, Int64
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies, TermCounts
from index.lexical.scoring import LexicalQuery, squared_norms
from index.lexical.segment import (
    Segment,
    SegmentDots,
    ask,
    join_documents,
    read_segment,
    take_documents,
)
from index.lexical.tables import NO_TERMS, DocumentTerms, JoinedTerms

_DOCUMENTS_A_CALL = 500
_LEAST_SQUARE = 1e-24  # of a norm
_NO_DOCUMENTS = join_documents([])


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, and what is known of its N documents.

    Attributes:
        segment: never changes.
        living: Bool[N], which of its documents are still there.
        squares: Float64[N], squared norms; NaN until they are needed. Readers fill them in, each
            with the same value.
        current: Bool[N], which of them are by the frequencies of the snapshot, not by earlier ones,
            which are near enough to choose candidates by.
        file: the name of the file that has the segment, if there is one.
    """

    segment: Segment
    living: Bool
    squares: Float64
    current: Bool
    file: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LexicalSnapshot:
    """All documents as of `changes` of the store. A document is living in one segment at most.

    Attributes:
        segments: in the order in which they were made.
        terms: how many documents have each term; shared by all snapshots, as of the newest.
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
        living = sum(np.count_nonzero(one.living) for one in self.segments)
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

    def scores(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the cosine Float32[K] of a query with each document [K]; 0 for missing ones."""
        scores = np.zeros(len(vector_ids), dtype=np.float32)
        for one, positions, rows in self.find(vector_ids):
            dots, newer = self._read(one, query).of(rows)
            fill_squares(one, rows[~one.current[rows]], self.frequencies)
            norms = np.sqrt(np.maximum(one.squares[rows] + newer, _LEAST_SQUARE))
            scores[positions] = np.minimum(dots / norms, 1.0)
        return scores

    def terms_of(self, vector_id: int) -> DocumentTerms:
        """Return the terms of one document; none if it is not there."""
        for one, _, rows in self.find(np.array([vector_id], dtype=np.int64)):
            return one.segment.terms_of(int(rows[0]))
        return NO_TERMS

    def best(self, query: LexicalQuery, k: int, among: IdSet | None) -> Int64:
        """Return the k documents with the highest cosines by the terms that are read by term.

        Those are the terms that few documents have, and the heaviest others; norms may be by
        earlier frequencies. Documents without any of the terms are not returned; of equal cosines,
        lower ids come first.

        Returns:
            Int64[N], N <= k, in any order.
        """
        ids, cosines = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for one in self.segments:
            part = self._read(one, query)
            rows = np.flatnonzero(one.living & (part.dots > 0))
            own = one.segment.documents.vector_ids[rows]
            if among is not None:
                kept = among.contains(own)
                own, rows = own[kept], rows[kept]
            fill_squares(one, rows[np.isnan(one.squares[rows])], self.frequencies)
            dots, squares = part.dots[rows], one.squares[rows]
            if part.newer is not None:
                squares = squares + part.newer[rows]
            ids.append(own)
            # No cosine is above 1: a document whose words were all unknown has no norm yet.
            cosines.append(dots / np.maximum(np.sqrt(np.maximum(squares, _LEAST_SQUARE)), dots))
        return _greatest(np.concatenate(ids), np.concatenate(cosines), k)

    def _read(self, one: LiveSegment, query: LexicalQuery) -> SegmentDots:
        """Read a query in a segment, once in a search."""
        asked = query.memory.get(self.frequencies)
        if asked is None:
            asked = query.memory[self.frequencies] = ask(query, self.frequencies)
        key = (one.segment, self.frequencies)
        part: SegmentDots | None = query.memory.get(key)
        if part is None:
            part = query.memory[key] = read_segment(one.segment, asked)
        return part

    def living_ids(self) -> Int64:
        """Return the ids of all documents, ascending."""
        own = (one.segment.documents.vector_ids[one.living] for one in self.segments)
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *own]))


def fresh_segment(segment: Segment) -> LiveSegment:
    """Return a segment all documents of which are living, and whose norms are not known."""
    size = len(segment)
    none = np.zeros(size, dtype=np.bool_)
    return LiveSegment(segment, ~none, np.full(size, np.nan), none)


def outdated(one: LiveSegment) -> LiveSegment:
    """Return a segment whose norms are to be computed again, by other frequencies."""
    return replace(one, squares=one.squares.copy(), current=np.zeros_like(one.current))


def fill_squares(one: LiveSegment, rows: Int64, frequencies: Frequencies) -> None:
    """Compute the squared norms of these rows Int64[K] of a segment, in parts."""
    for start in range(0, len(rows), _DOCUMENTS_A_CALL):
        some = rows[start : start + _DOCUMENTS_A_CALL]
        documents = take_documents(one.segment.documents, some)
        one.squares[some] = squared_norms(documents, frequencies.idf)
        one.current[some] = True


def without_documents(
    segments: Sequence[LiveSegment], vector_ids: Int64
) -> tuple[list[LiveSegment], JoinedTerms]:
    """Return segments in which these documents are not living, and the terms that they had."""
    left: list[LiveSegment] = []
    removed = []
    if not len(vector_ids):
        return list(segments), _NO_DOCUMENTS
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
    return left, join_documents(removed) if removed else _NO_DOCUMENTS


def _greatest(ids: Int64, sums: Float64, k: int) -> Int64:
    if len(ids) <= k:
        return ids
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = ids[sums > least], np.sort(ids[sums == least])
    return np.concatenate([above, equal[: k - len(above)]])

"""A segment of the lexical index: the terms of some documents, by document and by term.

Like the segments of a search engine, it is never changed: what becomes of its documents later is
kept elsewhere.

A query is read in each segment. A term that few documents of the segment have is read by term, as
these documents are known. So are the top terms of the query, since they decide which documents are
scored. All others many documents have, and they are read by document, only of the documents that
are scored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from encoder.arrays import Bool, Float32, Float64, Int64, UInt32, UInt64
from index.lexical.scoring import LexicalQuery, candidate_terms
from index.lexical.tables import DocumentTerms, JoinedTerms, UInt16

FREQUENT = 128  # documents; terms of fewer are read by term
MOST_FREQUENT = 2**16  # terms, as many as a UInt16 has values


def locate(term_ids: UInt32, wanted: UInt32) -> tuple[Int64, Int64]:
    """Return where the wanted terms [U] are among all [V], and which of the wanted these are.

    Both ascend, with different elements.
    """
    if not len(term_ids):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(term_ids, wanted), len(term_ids) - 1)
    found = np.flatnonzero(term_ids.take(at) == wanted)
    return at[found], found


def runs(starts: Int64, lengths: Int64) -> Int64:
    """Return the numbers from each start on, as many as the run is long, run after run."""
    before = np.cumsum(lengths) - lengths
    numbers: Int64 = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers


MOST_TERMS = 2**25  # of the documents of a segment: they are sorted in memory, 8 bytes each
_BITS = 64
_LEAST_SHARE = 1 / 16  # of all term ids; the bits of so many take 3 bytes each


@dataclass(frozen=True, slots=True, eq=False)
class TermBits:
    """Which term ids a segment has, a bit each: to find a thousand among millions.

    A binary search would read some twenty of the ids for each, far apart in memory.

    Attributes:
        bits: UInt64[W], of 64 ids each.
        before: UInt32[W], how many of them are of lower ids.
    """

    bits: UInt64
    before: UInt32

    def locate(self, wanted: UInt32) -> tuple[Int64, Int64]:
        """Return what `locate` does, of the ids that are set and the wanted ones [U]."""
        words, masks = wanted // _BITS, np.uint64(1) << (wanted % _BITS).astype(np.uint64)
        bits = self.bits.take(words, mode="clip")
        found = np.flatnonzero((bits & masks != 0) & (words < len(self.bits)))
        lower = np.bitwise_count(bits[found] & (masks[found] - np.uint64(1)))
        return self.before.take(words[found]).astype(np.int64) + lower, found


def note_bits(term_ids: UInt32) -> TermBits | None:
    """Return the bits of these ids [U], ascending; None where a search among them costs less."""
    size = int(term_ids[-1]) + 1 if len(term_ids) else 0
    if len(term_ids) <= size * _LEAST_SHARE:
        return None
    is_set = np.zeros(-(-size // _BITS) * _BITS, dtype=np.bool_)
    is_set[term_ids] = True
    bits = np.packbits(is_set, bitorder="little").view("<u8")
    numbers = np.bitwise_count(bits)
    return TermBits(bits, np.cumsum(numbers, dtype=np.uint32) - numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """N documents with M terms, U of them different; F of these are frequent, K times.

    The arrays are in the order of a file, those of the longest types first, so that all are
    aligned.

    Attributes:
        vector_ids: Int64[N], ascending.
        document_ends: Int64[N], where the terms of each document end.
        frequent_ends: Int64[N], where the frequent terms of each document end.
        ends: UInt32[U], where the documents of each term end.
        document_terms: UInt32[M], the terms of the documents, ascending within each.
        rows: UInt32[M], the rows of the documents that have each term, one term after another.
        term_ids: UInt32[U], ascending.
        frequent: UInt32[F], the terms that more than `FREQUENT` documents have, ascending.
        document_counts: UInt16[M], how often each document has its terms.
        counts: UInt16[M], how often the documents of each term have it.
        places: UInt16[K], where in `frequent` those of each document are.
        frequent_counts: UInt16[K], how often each document has its frequent terms.
        bits: of the term ids, if they are many.
    """

    vector_ids: Int64
    document_ends: Int64
    frequent_ends: Int64
    ends: UInt32
    document_terms: UInt32
    rows: UInt32
    term_ids: UInt32
    frequent: UInt32
    document_counts: UInt16
    counts: UInt16
    places: UInt16
    frequent_counts: UInt16
    bits: TermBits | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", note_bits(self.term_ids))

    def __len__(self) -> int:
        return len(self.vector_ids)

    @property
    def size(self) -> int:
        """How many terms the documents have together."""
        return len(self.rows)

    @property
    def documents(self) -> JoinedTerms:
        """The terms of each document."""
        return JoinedTerms(
            self.vector_ids, self.document_terms, self.document_counts, self.document_ends
        )

    def find(self, vector_ids: Int64) -> tuple[Int64, Int64]:
        """Return which of these ids [K] the segment has, as positions [F], and their rows [F]."""
        ids = self.vector_ids
        if not len(ids) or not len(vector_ids) or vector_ids.min() > ids[-1]:  # as new ones are
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        rows = np.minimum(np.searchsorted(ids, vector_ids), len(ids) - 1)
        positions = np.flatnonzero(ids[rows] == vector_ids)
        return positions, rows[positions]

    def locate(self, wanted: UInt32) -> tuple[Int64, Int64]:
        """Return where the wanted terms [U], ascending, are in `term_ids`, and which these are."""
        return locate(self.term_ids, wanted) if self.bits is None else self.bits.locate(wanted)

    def terms_of(self, row: int) -> DocumentTerms:
        """Return the terms of one document."""
        span = slice(self.document_ends[row - 1] if row else 0, self.document_ends[row])
        return self.document_terms[span], self.document_counts[span]


def make_segment(documents: JoinedTerms) -> Segment:
    """Sort the terms of documents by term."""
    keys = documents.term_ids.astype(np.uint64) << np.uint64(32)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    terms, entries = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    is_last = np.ones(len(keys), dtype=np.bool_)
    is_last[:-1] = terms[1:] != terms[:-1]
    ends = np.flatnonzero(is_last) + 1
    term_ids = terms[ends - 1]
    lengths = np.diff(documents.ends, prepend=0)
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
    chosen = _most_frequent(np.diff(ends, prepend=0))
    places, is_frequent = _find_terms(chosen, entries, ends)
    return Segment(
        vector_ids=documents.vector_ids,
        document_ends=documents.ends,
        frequent_ends=np.append(0, np.cumsum(is_frequent))[documents.ends],
        ends=ends.astype(np.uint32),
        document_terms=documents.term_ids,
        rows=rows.take(entries),
        term_ids=term_ids,
        frequent=term_ids[chosen],
        document_counts=documents.counts,
        counts=documents.counts.take(entries),
        places=places,
        frequent_counts=documents.counts[is_frequent],
    )


def _most_frequent(numbers: Int64) -> Int64:
    """Return which terms, of which so many documents each have them, are read by document."""
    chosen = np.flatnonzero(numbers > FREQUENT)
    if len(chosen) <= MOST_FREQUENT:
        return chosen
    order = np.argpartition(numbers[chosen], len(chosen) - MOST_FREQUENT)
    return np.sort(chosen[order[len(chosen) - MOST_FREQUENT :]])


def _find_terms(chosen: Int64, entries: UInt32, ends: Int64) -> tuple[UInt16, Bool]:
    """Return where documents have the chosen terms.

    Args:
        chosen: Int64[F] of the terms.
        entries: UInt32[M], where in the terms of the documents each term is, one after another.
        ends: Int64[U], where those of each term end.

    Returns:
        Which of the chosen terms each entry is that is one, UInt16[K], and which are, Bool[M].
    """
    lengths = np.diff(ends, prepend=0)[chosen]
    found = entries[runs(ends[chosen] - lengths, lengths)]
    places, is_chosen = np.zeros(len(entries), np.uint16), np.zeros(len(entries), np.bool_)
    places[found] = np.repeat(np.arange(len(chosen)), lengths)
    is_chosen[found] = True
    return places[is_chosen], is_chosen


def join_documents(parts: Iterable[tuple[JoinedTerms, Int64]]) -> JoinedTerms:
    """Return the terms of the chosen documents of each part, one part after another."""
    term_ids: list[UInt32] = [np.zeros(0, dtype=np.uint32)]
    counts = [np.zeros(0, dtype=np.uint16)]
    vector_ids = [np.zeros(0, dtype=np.int64)]
    lengths = [np.zeros(0, dtype=np.int64)]
    for documents, rows in parts:
        ends = documents.ends[rows]
        starts = np.where(rows > 0, documents.ends[rows - 1], 0)
        if len(rows) and (np.diff(rows) == 1).all():  # as when none was removed
            bounds = [slice(starts[0], ends[-1])]
        else:
            bounds = list(map(slice, starts.tolist(), ends.tolist()))
        term_ids += [documents.term_ids[span] for span in bounds]
        counts += [documents.counts[span] for span in bounds]
        vector_ids.append(documents.vector_ids[rows])
        lengths.append(ends - starts)
    return JoinedTerms(
        np.concatenate(vector_ids),
        np.concatenate(term_ids),
        np.concatenate(counts),
        np.cumsum(np.concatenate(lengths)),
    )


def merge_segments(parts: Sequence[tuple[Segment, Bool]]) -> Segment:
    """Make one segment of the documents of several that are kept, Bool[N] of each.

    No document is kept twice.
    """
    documents = join_documents((segment.documents, np.flatnonzero(kept)) for segment, kept in parts)
    order = np.argsort(documents.vector_ids)
    if (order[:-1] > order[1:]).any():
        documents = join_documents([(documents, order)])
    return make_segment(documents)


# Arrays of so many terms of documents fit the cache of a core, and need no new memory each time.
_ENTRIES_AT_ONCE = 2**16
_POSTINGS_AT_ONCE = 2**18


@dataclass(frozen=True, slots=True, eq=False)
class SegmentDots:
    """A query in a segment of N documents, F frequent terms of which are read by document.

    Attributes:
        segment: that was read.
        dots: Float64[N], what the terms that are read by term give to the dot product.
        weights: Float32[F], of the other terms; 0 for those the query has not.
    """

    segment: Segment
    dots: Float64
    weights: Float32

    def of(self, rows: Int64) -> Float64:
        """Return the dot products of documents Float64[K]."""
        dots = self.dots[rows]
        if not self.weights.any():
            return dots
        for part, places, counts, starts in _parts(self.segment, rows):
            dots[part] += np.add.reduceat(self.weights.take(places) * _roots(counts), starts)
        return dots


class QueryReads:
    """A query, and what one search has read of segments for it, so that no step reads it again.

    Attributes:
        query: the terms.
    """

    def __init__(self, query: LexicalQuery) -> None:
        """Make a query ready to be read."""
        self.query = query
        self._parts: dict[Segment, SegmentDots] = {}
        # A term of one document may have more postings in a segment, of documents that are gone.
        fetching = query.documents <= 1
        fetching[candidate_terms(query)] = True
        order = np.argsort(query.term_ids)
        self._term_ids = query.term_ids[order].astype(np.uint32)
        self._weights = (query.weights * query.idf)[order]  # of the root of the count
        self._fetching = fetching[order]

    def of(self, segment: Segment) -> SegmentDots:
        """Return what the query has in a segment."""
        if segment not in self._parts:
            self._parts[segment] = self._read(segment)
        return self._parts[segment]

    def _read(self, segment: Segment) -> SegmentDots:
        """Read the terms that are read by term."""
        at, terms = segment.locate(self._term_ids)
        ends = segment.ends.take(at).astype(np.int64)
        starts = np.where(at > 0, segment.ends.take(at - 1), 0).astype(np.int64)
        lengths = ends - starts
        many = np.flatnonzero((lengths > FREQUENT) & ~self._fetching[terms])
        places, found = locate(segment.frequent, self._term_ids[terms[many]])
        weights = np.zeros(len(segment.frequent), dtype=np.float32)
        weights[places] = self._weights[terms[many[found]]]
        by_term = np.ones(len(terms), dtype=np.bool_)
        by_term[many[found]] = False
        terms, starts, lengths = terms[by_term], starts[by_term], lengths[by_term]
        dots = np.zeros(len(segment))
        for some in bounded(lengths, _POSTINGS_AT_ONCE):
            entries = runs(starts[some], lengths[some])
            rows, counts = segment.rows.take(entries), segment.counts.take(entries)
            values = self._weights[terms[some]].astype(np.float64)
            products = np.repeat(values, lengths[some])
            products *= _roots(counts)
            dots += np.bincount(rows, products, len(segment))
        return SegmentDots(segment, dots, weights)


def _roots(counts: UInt16) -> Float32:
    return np.sqrt(counts, dtype=np.float32)


def _parts(segment: Segment, rows: Int64) -> Iterator[tuple[Int64, UInt16, UInt16, Int64]]:
    """Yield the frequent terms of documents, a bounded number at once.

    Yields:
        Which of the documents they are; places and counts of their terms, one document after
        another; where those of each document start.
    """
    ends = segment.frequent_ends.take(rows)
    starts = np.where(rows > 0, segment.frequent_ends.take(rows - 1), 0)
    filled = np.flatnonzero(starts < ends)  # `reduceat` takes no empty part
    lengths = (ends - starts)[filled]
    for some in bounded(lengths, _ENTRIES_AT_ONCE):
        chosen = filled[some]
        spans = list(map(slice, starts[chosen].tolist(), ends[chosen].tolist()))
        yield (
            chosen,
            np.concatenate([segment.places[span] for span in spans]),
            np.concatenate([segment.frequent_counts[span] for span in spans]),
            np.cumsum(lengths[some]) - lengths[some],
        )


def bounded(lengths: Int64, size: int) -> Iterator[slice]:
    """Divide runs of these lengths [K] into parts of about a size together."""
    part = np.cumsum(lengths) // size
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(lengths)]
    for start, end in pairwise(bounds):
        if start < end:
            yield slice(start, end)

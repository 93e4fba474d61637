"""A segment of the lexical index: the terms of some documents, by document and by term.

Like the segments of a search engine, it is never changed: what becomes of its documents later is
kept elsewhere.

A query is read in each segment. A term that few documents of the segment have is read by term, as
these documents are known. So are the top terms of the query, since they decide which documents are
scored. All others many documents have, and they are read by document, only of the documents that
are scored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Bool, Float32, Float64, Int64, UInt32, UInt64
from index.lexical.scoring import LexicalQuery, candidate_terms
from index.lexical.tables import DocumentTerms, JoinedTerms

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
        """Return where terms of the segment [V] are in `term_ids`, and which of them these are."""
        many = np.flatnonzero(numbers > FREQUENT)
        places, found = locate(self.term_ids, term_ids[many])
        return places, many[found]


def locate(term_ids: UInt32, wanted: UInt32) -> tuple[Int64, Int64]:
    """Return where the wanted terms [U] are among all [V], and which of the wanted these are.

    Both ascend, with different elements.
    """
    if not len(term_ids):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(term_ids, wanted), len(term_ids) - 1)
    found = np.flatnonzero(term_ids.take(at) == wanted)
    return at[found], found


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
    chosen_entries = entries[runs(ends[chosen] - numbers, numbers)]
    places[chosen_entries] = np.repeat(np.arange(len(chosen)), numbers)
    frequent[chosen_entries] = True
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
    """N documents with M terms, U of them different.

    Attributes:
        documents: the terms of each document, ascending by vector id.
        term_ids: UInt32[U], ascending.
        rows: UInt32[M], the rows of the documents that have each term, one term after another.
        counts: UInt16[M], how often each of them has it.
        ends: UInt32[U], where those of each term end.
        frequent: the terms that many of the documents have, once more.
        bits: of the term ids, if they are many.
    """

    documents: JoinedTerms
    term_ids: UInt32
    rows: UInt32
    counts: NDArray[np.uint16]
    ends: UInt32
    frequent: FrequentTerms
    bits: TermBits | None

    def __len__(self) -> int:
        return len(self.documents.vector_ids)

    @property
    def size(self) -> int:
        """How many terms the documents have together."""
        return len(self.rows)

    def find(self, vector_ids: Int64) -> tuple[Int64, Int64]:
        """Return which of these ids [K] the segment has, as positions [F], and their rows [F]."""
        ids = self.documents.vector_ids
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
        documents = self.documents
        span = slice(documents.ends[row - 1] if row else 0, documents.ends[row])
        return documents.term_ids[span], documents.counts[span]


def make_segment(documents: JoinedTerms) -> Segment:
    """Sort the terms of documents by term."""
    keys = documents.term_ids.astype(np.uint64) << np.uint64(32)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    term_ids, entries = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    is_last = np.ones(len(keys), dtype=np.bool_)
    is_last[:-1] = term_ids[1:] != term_ids[:-1]
    last = np.flatnonzero(is_last)
    lengths = np.diff(documents.ends, prepend=0)
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
    different = term_ids[last]
    return Segment(
        documents,
        different,
        rows.take(entries),
        documents.counts.take(entries),
        (last + 1).astype(np.uint32),
        find_frequent(documents, different, entries, last + 1),
        note_bits(different),
    )


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
class PreparedQuery:
    """The terms of a query as segments read them.

    Attributes:
        term_ids: UInt32[U], ascending.
        weights: Float32[U], by which the root of the count in a document is multiplied.
        fetching: Bool[U], the terms that fetch candidates.
    """

    term_ids: UInt32
    weights: Float32
    fetching: Bool


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
        for part, places, counts, starts in _parts(self.segment.frequent, rows):
            dots[part] += np.add.reduceat(self.weights.take(places) * _roots(counts), starts)
        return dots


def prepare_query(query: LexicalQuery) -> PreparedQuery:
    """Make a query ready to be read."""
    order = np.argsort(query.term_ids)
    # A term of one document may have more postings in a segment, of documents that are gone.
    fetching = query.documents <= 1
    fetching[candidate_terms(query)] = True
    return PreparedQuery(
        query.term_ids[order].astype(np.uint32),
        (query.weights * query.idf)[order],
        fetching[order],
    )


def read_segment(segment: Segment, prepared: PreparedQuery) -> SegmentDots:
    """Read the terms of a query that are read by term."""
    at, terms = segment.locate(prepared.term_ids)
    ends = segment.ends.take(at).astype(np.int64)
    starts = np.where(at > 0, segment.ends.take(at - 1), 0).astype(np.int64)
    lengths = ends - starts
    places, found = segment.frequent.locate(prepared.term_ids[terms], lengths)
    by_document = ~prepared.fetching[terms[found]]
    places, found = places[by_document], found[by_document]
    by_term = np.ones(len(terms), dtype=np.bool_)
    by_term[found] = False
    found, size = terms[found], len(segment.frequent.term_ids)
    weights = np.zeros(size, dtype=np.float32)
    weights[places] = prepared.weights[found]
    terms, starts, lengths = terms[by_term], starts[by_term], lengths[by_term]
    dots = np.zeros(len(segment))
    for some in bounded(lengths, _POSTINGS_AT_ONCE):
        entries = runs(starts[some], lengths[some])
        rows, counts = segment.rows.take(entries), segment.counts.take(entries)
        values = prepared.weights[terms[some]].astype(np.float64)
        products = np.repeat(values, lengths[some])
        products *= _roots(counts)
        dots += np.bincount(rows, products, len(segment))
    return SegmentDots(segment, dots, weights)


def _roots(counts: NDArray[np.uint16]) -> Float32:
    return np.sqrt(counts, dtype=np.float32)


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
    for some in bounded(lengths, _ENTRIES_AT_ONCE):
        chosen = filled[some]
        spans = list(map(slice, starts[chosen].tolist(), ends[chosen].tolist()))
        yield (
            chosen,
            np.concatenate([frequent.places[span] for span in spans]),
            np.concatenate([frequent.counts[span] for span in spans]),
            np.cumsum(lengths[some]) - lengths[some],
        )


def bounded(lengths: Int64, size: int) -> Iterator[slice]:
    """Divide runs of these lengths [K] into parts of about a size together."""
    part = np.cumsum(lengths) // size
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(lengths)]
    for start, end in pairwise(bounds):
        if start < end:
            yield slice(start, end)

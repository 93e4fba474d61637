"""A segment of the lexical index: the terms of some documents, by document and by term.

Like the segments of a search engine, it is never changed: what becomes of its documents later is
kept beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Bool, Int64, UInt32, UInt64
from index.lexical.frequent_terms import FrequentTerms, find_frequent, locate
from index.lexical.tables import DocumentTerms, JoinedTerms

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

    def locate(self, asked: UInt32) -> tuple[Int64, Int64]:
        """Return what `locate` does, of the ids that are set and the asked ones [U]."""
        words, own = asked // _BITS, np.uint64(1) << (asked % _BITS).astype(np.uint64)
        bits = self.bits.take(words, mode="clip")
        found = np.flatnonzero((bits & own != 0) & (words < len(self.bits)))
        lower = np.bitwise_count(bits[found] & (own[found] - np.uint64(1)))
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
        own = self.documents.vector_ids
        if not len(own) or not len(vector_ids) or vector_ids.min() > own[-1]:  # as new ones are
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        rows = np.minimum(np.searchsorted(own, vector_ids), len(own) - 1)
        positions = np.flatnonzero(own[rows] == vector_ids)
        return positions, rows[positions]

    def locate(self, asked: UInt32) -> tuple[Int64, Int64]:
        """Return where the asked terms [U], ascending, are in `term_ids`, and which these are."""
        return locate(self.term_ids, asked) if self.bits is None else self.bits.locate(asked)

    def terms_of(self, row: int) -> DocumentTerms:
        """Return the terms of one document."""
        documents = self.documents
        own = slice(documents.ends[row - 1] if row else 0, documents.ends[row])
        return documents.term_ids[own], documents.counts[own]


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


def take_documents(documents: JoinedTerms, rows: Int64) -> JoinedTerms:
    """Return the terms of the documents of these rows Int64[K], in this order."""
    return join_documents([(documents, rows)])


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
        term_ids += [documents.term_ids[own] for own in bounds]
        counts += [documents.counts[own] for own in bounds]
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
    documents = join_documents((one.documents, np.flatnonzero(kept)) for one, kept in parts)
    order = np.argsort(documents.vector_ids)
    if (order[:-1] > order[1:]).any():
        documents = take_documents(documents, order)
    return make_segment(documents)


def divide(lengths: Sequence[int], most: int) -> list[slice]:
    """Divide a sequence of segments of these lengths into runs of at most `most` together.

    A longer segment is a run of its own.
    """
    starts, size = [0], 0
    for number, length in enumerate(lengths):
        if size and size + length > most:
            starts.append(number)
            size = 0
        size += length
    return [slice(*both) for both in pairwise([*starts, len(lengths)])] if lengths else []

"""How many documents have each term: now, and at the moment by which norms are computed."""

import sqlite3
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Float32, Int32, Int64, UInt32
from index.lexical.scoring import inverse_document_frequencies
from index.lexical.tables import JoinedTerms, read_last_term, read_pairs

MAX_DRIFT = 0.05  # share of the documents that may change before norms are computed again
_ALWAYS_RENEWED = 1_000  # documents of which the norms take no time


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Document frequencies as of `changes` of the store.

    A term of only one document weighs nothing here: it is shared with no other, and misspelt words
    would lengthen the vectors of long documents.

    Attributes:
        documents: Int32[T], how many documents have each term, by term id.
        number: how many documents there are.
        changes: of the store.
    """

    documents: Int32
    number: int
    changes: int

    def idf(self, term_ids: UInt32 | Int64) -> Float32:
        """Return the inverse document frequency of each term id [K]; 0 for unknown ones."""
        known = term_ids < len(self.documents)
        documents = np.zeros(len(term_ids), dtype=np.int64)
        documents[known] = self.documents[term_ids[known]]
        idf = inverse_document_frequencies(documents, self.number)
        idf[documents < 2] = 0.0
        return idf

    def serve(self, number: int, changes: int) -> bool:
        """Return whether norms may still be computed by them, in a store of `number` documents."""
        drift = abs(changes - self.changes)
        return drift <= MAX_DRIFT * max(0, number - _ALWAYS_RENEWED)


class TermCounts:
    """Arrays by term id that grow with the terms; changed by one thread, read by many.

    A term keeps its id, so readers of an older state see the frequencies of a newer one at
    worst.

    Attributes:
        frequencies: Int32[T], how many documents have each term, by term id.
        pairs: Bool[T], which terms are pairs of words; right up to the id `last`.
        last: the highest term id that is known.
    """

    def __init__(self, frequencies: Int32, pairs: Bool, last: int) -> None:
        """Take writable arrays of the same length."""
        self.frequencies = frequencies
        self.pairs = pairs
        self.last = last

    def copy(self) -> "TermCounts":
        """Return a copy that does not follow changes."""
        size = self.last + 1
        return TermCounts(self.frequencies[:size].copy(), self.pairs[:size].copy(), self.last)

    def read_new(self, connection: sqlite3.Connection) -> None:
        """Read which terms are new, and which of them are pairs."""
        last = read_last_term(connection)
        if last > self.last:
            self.learn(last, read_pairs(connection, self.last))

    def learn(self, last: int, pairs: Int64) -> None:
        """Take new terms up to the id `last`, of which the ids Int64[N] are pairs."""
        if last >= len(self.pairs):
            size = last + 1 + last // 8  # more than needed, as most changes bring new terms
            self.pairs = np.append(self.pairs, np.zeros(size - len(self.pairs), dtype=np.bool_))
            missing = np.zeros(size - len(self.frequencies), dtype=np.int32)
            self.frequencies = np.append(self.frequencies, missing)
        self.pairs[pairs] = True
        self.last = last

    def count(self, documents: JoinedTerms, by: int) -> None:
        """Count the terms of documents, all of them known: 1 for added, -1 for removed ones."""
        np.add.at(self.frequencies, documents.term_ids, np.int32(by))


def no_terms() -> TermCounts:
    """Return the counts of an empty store."""
    return TermCounts(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.bool_), -1)

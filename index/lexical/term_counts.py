"""How many documents have each term, and which terms are pairs of words, in memory."""

import sqlite3

import numpy as np

from encoder.arrays import Bool, Int32, Int64
from index.lexical.tables import JoinedTerms, read_last_term, read_pairs


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

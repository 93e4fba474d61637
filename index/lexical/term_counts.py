"""What is known of terms in memory: their frequencies, which are pairs, and some of the words."""

import json
import sqlite3
from collections.abc import Iterable, Mapping

import numpy as np

from encoder.arrays import Bool, Int32
from index.lexical.tables import JoinedTerms, read_last_term, read_pairs
from index.sqlite.connections import SQLiteConnections

_KEPT = 50_000  # some megabytes; then all are forgotten

_TERMS = """
SELECT json_group_array(term_id), json_group_array(term)
FROM terms WHERE term_id IN (SELECT value FROM json_each(?))"""


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

    def learn(self, connection: sqlite3.Connection) -> None:
        """Read which terms are new, and which of them are pairs."""
        last = read_last_term(connection)
        if last <= self.last:
            return
        new = read_pairs(connection, self.last)
        if last >= len(self.pairs):
            size = last + 1 + last // 8  # more than needed, as most changes bring new terms
            self.pairs = np.append(self.pairs, np.zeros(size - len(self.pairs), dtype=np.bool_))
            missing = np.zeros(size - len(self.frequencies), dtype=np.int32)
            self.frequencies = np.append(self.frequencies, missing)
        self.pairs[new] = True
        self.last = last

    def count(self, documents: JoinedTerms, by: int) -> None:
        """Count the terms of documents, all of them known: 1 for added, -1 for removed ones."""
        np.add.at(self.frequencies, documents.term_ids, np.int32(by))


class TermNames:
    """The words of term ids in an open store. Safe to use from many threads.

    An id is never given to another term, so that what is kept stays right.
    """

    def __init__(self, connections: SQLiteConnections) -> None:
        """Use the connections of a store; keep none yet."""
        self._connections = connections
        self._known: dict[int, str] = {}

    def of(self, term_ids: Iterable[int]) -> Mapping[int, str]:
        """Return the words of these ids, and maybe of others; those of no document may be absent.

        Raises:
            StoreError: the file cannot be read.
        """
        known = self._known
        missing = sorted(one for one in set(term_ids) if one not in known)
        if not missing:
            return known
        with self._connections.reading() as connection:
            # One row: a thread waits for the interpreter after each.
            ids, words = connection.execute(_TERMS, (json.dumps(missing),)).fetchone()
        found = dict(zip(json.loads(ids), json.loads(words), strict=True))
        if len(known) + len(found) > _KEPT:
            self._known = known = {one: known[one] for one in set(term_ids) if one in known}
        known.update(found)
        return known


def no_terms() -> TermCounts:
    """Return the counts of an empty store."""
    return TermCounts(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.bool_), -1)

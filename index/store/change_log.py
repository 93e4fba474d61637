"""The change log of a store: which vectors came and went since a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import index.store.rows as sql
from encoder.arrays import Int64
from index.store.database import Connection, Connections

_REMOVALS_A_TRANSACTION = 10_000  # which blocks writes
_KNOWN = """
SELECT sequence, log_start FROM meta"""
_ADDED_SINCE = """
SELECT count(*) FROM vectors WHERE sequence > ?"""
_REMOVED_SINCE = """
SELECT count(*) FROM removals WHERE sequence > ?"""
_NUMBER = """
SELECT count(*) FROM vectors"""
# Vector ids are given in the order of the changes, and never twice.
_ADDED_AFTER = """
SELECT vector_id FROM vectors WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
# A text, title, metadata, or what is derived of a document was changed.
_REVISED_SINCE = """
SELECT v.vector_id, CASE WHEN r.sequence > v.sequence THEN r.sequence ELSE v.sequence END
FROM vectors v LEFT JOIN revisions r USING (vector_id) WHERE v.vector_id IN (
    SELECT vector_id FROM vectors WHERE sequence > ?1
    UNION SELECT vector_id FROM revisions WHERE sequence > ?1
) ORDER BY v.vector_id"""
_GONE_SINCE = """
SELECT vector_id FROM removals WHERE sequence > ? ORDER BY vector_id"""
_NOTE_START = """
UPDATE meta SET log_start = ?1 WHERE log_start < ?1"""
_FORGET = """
DELETE FROM removals WHERE vector_id IN (
    SELECT vector_id FROM removals WHERE sequence <= ? LIMIT ?
)"""


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed in a store: to follow it is to remove, then to add what has changed.

    Attributes:
        sequence: of the store, after it.
        changed: vector ids, ascending, of the present documents that are new, or of which title,
            metadata or what is derived has changed.
        removed: vector ids, ascending, of documents that are gone.
        revisions: the sequence of the last change of each of `changed`, where they were read.
    """

    sequence: int
    changed: Sequence[int]
    removed: Sequence[int]
    revisions: Sequence[int] = ()


def read_changes(store: Connection, position: int) -> Changes | None:
    """Return the changes of a store after a sequence; None where they are forgotten or ahead.

    From 0 they always are known, without what was removed before `ChangeLog.start`.
    """
    sequence, start = store.execute(_KNOWN).fetchone()
    if not 0 <= position <= sequence or 0 < position < start:
        return None
    rows = store.execute(_REVISED_SINCE, (position,)).fetchall()
    removed = [row[0] for row in store.execute(_GONE_SINCE, (position,))]
    return Changes(sequence, [row[0] for row in rows], removed, [row[1] for row in rows])


def count_changes(store: Connection, sequence: int, documents: int) -> tuple[int, int]:
    """Count the documents that came, and those that went, since a store had so many of them."""
    (added,) = store.execute(_ADDED_SINCE, (sequence,)).fetchone()
    (number,) = store.execute(_NUMBER).fetchone()
    return int(added), max(0, documents + added - number)


class ChangeLog:
    """Which vectors of an open store were removed, so that an older index can catch up.

    Each removal is a row. An index needs the rows after its sequence to catch up. All others are
    forgotten, otherwise the log would grow with every change of a document. Safe to use from many
    threads. Every call raises StoreError where the file cannot be read or written.
    """

    def __init__(self, connections: Connections) -> None:
        """Use the connections of a store; `DocumentStore.log` is one."""
        self._connections = connections

    @property
    def start(self) -> int:
        """The lowest sequence from which an index can still catch up; it always can from 0."""
        return int(self._connections.read_rows("SELECT log_start FROM meta")[0][0])

    def count_since(self, sequence: int, documents: int) -> tuple[int, int]:
        """Count what came and went since a sequence, as `count_changes`."""
        with self._connections.reading() as connection:
            return count_changes(connection, sequence, documents)

    def length_since(self, sequence: int) -> int:
        """Count the vectors that were added or removed after a sequence, from `start` on."""
        with self._connections.reading() as connection:
            counts = (_ADDED_SINCE, _REMOVED_SINCE)
            return sum(connection.execute(count, (sequence,)).fetchone()[0] for count in counts)

    @property
    def identity(self) -> str:
        """What tells the store from all others: drawn when it was made."""
        return str(self._connections.read_rows("SELECT identity FROM meta")[0][0])

    def since(self, sequence: int) -> Changes | None:
        """Return what has changed after a sequence, as `read_changes`."""
        with self._connections.reading() as connection:
            return read_changes(connection, sequence)

    def added_after(self, vector_id: int, limit: int = 2**62) -> tuple[int, Int64]:
        """Return the sequence, and the first present vector ids after one, ascending Int64[N].

        A document whose text is new has a new vector id, so a reader that has seen the vectors up
        to an id has seen every text that was stored before; nothing of this is ever forgotten.

        Args:
            vector_id: of the last vector that was seen; it may be gone.
            limit: N at most.
        """
        with self._connections.reading() as connection:
            rows = connection.execute(_ADDED_AFTER, (vector_id, limit)).fetchall()
            return sql.read_sequence(connection), np.array(rows, dtype=np.int64).reshape(-1)

    @property
    def last_vector_id(self) -> int:
        """The last vector id that was given; 0 in a new store."""
        return int(self._connections.read_rows("SELECT last_vector_id FROM meta")[0][0])

    def forget(self, before: int) -> int:
        """Forget the removals that no index of the sequence `before` or later needs; count them."""
        forgotten = 0
        while True:
            with self._connections.writing() as connection:
                connection.execute(_NOTE_START, (before,))
                some = connection.execute(_FORGET, (before, _REMOVALS_A_TRANSACTION))
                deleted: int = some.rowcount
            forgotten += deleted
            if deleted < _REMOVALS_A_TRANSACTION:
                return forgotten

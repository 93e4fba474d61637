"""The change log of a store in PostgreSQL, as `index.store.change_log` is one of SQLite."""

import numpy as np

from encoder.arrays import Int64
from index.postgres.connections import PostgreSQLConnections, Session
from index.postgres.statements import lock_counters, read_sequence

_REMOVALS_A_TRANSACTION = 10_000  # which blocks writes
_ADDED_SINCE = """
SELECT count(*) FROM {s}.vectors WHERE sequence > %s"""
_REMOVED_SINCE = """
SELECT count(*) FROM {s}.removals WHERE sequence > %s AND added <= %s"""
_ADDED_AFTER = """
SELECT vector_id FROM {s}.vectors WHERE vector_id > %s ORDER BY vector_id LIMIT %s"""
_START = """
SELECT log_start FROM {s}.meta"""
_SET_START = """
UPDATE {s}.meta SET log_start = greatest(log_start, %s)"""
_FORGET = """
DELETE FROM {s}.removals WHERE vector_id IN (
    SELECT vector_id FROM {s}.removals
    WHERE sequence <= %s AND NOT (added <= %s AND sequence > %s) LIMIT %s
)"""


class PostgreSQLChangeLog:
    """The change log of an open store. Safe to use from many threads."""

    def __init__(self, connections: PostgreSQLConnections) -> None:
        """Use the connections of a store; `PostgreSQLDocumentStore.log` is one."""
        self._connections = connections

    @property
    def start(self) -> int:
        """The lowest sequence from which an index can still catch up; it always can from 0.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._connections.reading() as session:
            return read_log_start(session)

    def count_since(self, sequence: int) -> tuple[int, int]:
        """Count the present vectors added since a sequence, and those of then that are gone.

        Correct from `start` on, and for the last `trained` of `forget`.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._connections.reading() as session:
            added = session.value(_ADDED_SINCE, sequence)
            removed = session.value(_REMOVED_SINCE, sequence, sequence)
            return int(added), int(removed)

    def added_after(self, vector_id: int, limit: int) -> tuple[int, Int64]:
        """Return the sequence, and the first present vector ids after one, ascending Int64[N].

        Args:
            vector_id: of the last vector that was seen; it may be gone.
            limit: N at most.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._connections.reading() as session:
            rows = session.rows(_ADDED_AFTER, vector_id, limit)
            return read_sequence(session), np.array(rows, dtype=np.int64).reshape(-1)

    @property
    def last_vector_id(self) -> int:
        """The last vector id that was given; 0 in a new store.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._connections.reading() as session:
            return int(session.value("SELECT last_vector_id FROM {s}.meta"))

    def forget(self, before: int, *, trained: int) -> int:
        """Forget the removals that no index of the sequence `before` or later needs.

        Args:
            before: sequence of the oldest index that may have to catch up.
            trained: sequence that the present lists were trained at.

        Returns:
            How many were forgotten.

        Raises:
            StoreError: the database cannot be written.
        """
        forgotten = 0
        while True:
            with self._connections.writing() as session:
                lock_counters(session)
                session.run(_SET_START, before)
                some = session.run(_FORGET, before, trained, trained, _REMOVALS_A_TRANSACTION)
                forgotten += some
            if some < _REMOVALS_A_TRANSACTION:
                return forgotten


def read_log_start(session: Session) -> int:
    """Return the sequence since which every removal is logged."""
    return int(session.value(_START))

"""Answers kept under the Idempotency-Key of their request, so that a repeated one is replayed.

Their age is counted in seconds of service by a monotonic clock, written down with each answer: a
wall clock that jumps makes no key forgotten, and while the service is down none gets older.
"""

import hashlib
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from index.sqlite.connections import SQLiteConnections
from service.errors import KeyInUseError, KeyReusedError

KEPT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer as it is sent.

    Attributes:
        status: the HTTP status.
        body: JSON.
        location: the Location header, where there is one.
    """

    status: int
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedResponse:
    """An answer, the key of its request and the digest of what was asked."""

    key: str
    request: bytes
    answer: StoredResponse
    served_seconds: float = 0.0
    max_kept: int = 0


class Answers:
    """The kept answers of one data directory."""

    def __init__(self, connections: SQLiteConnections, max_kept: int) -> None:
        """Go on counting where the last process stopped.

        Args:
            connections: to the tables.
            max_kept: of more, the oldest are forgotten before their time.

        Raises:
            StoreError: the tables could not be read.
        """
        self._connections = connections
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._in_progress: set[str] = set()
        with connections.reading() as connection:
            (self._served,) = connection.execute("SELECT served_seconds FROM meta").fetchone()
        self._opened = monotonic()

    @property
    def keys_in_progress(self) -> frozenset[str]:
        """Keys of the requests that are being worked on."""
        with self._lock:
            return frozenset(self._in_progress)

    @contextmanager
    def in_progress(self, key: str | None) -> Iterator[None]:
        """Let no other request with this key begin while the block runs.

        Raises:
            KeyInUseError: another one has begun and has not ended.
        """
        if key is None:
            yield
            return
        with self._lock:
            if key in self._in_progress:
                raise KeyInUseError
            self._in_progress.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._in_progress.discard(key)

    def find(self, key: str | None, request: bytes) -> StoredResponse | None:
        """Return the answer that was given to this request, if it is kept.

        Raises:
            KeyReusedError: the key was given with another request.
        """
        if key is None:
            return None
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT request, status, body, location FROM answers "
                "WHERE key = ? AND served_seconds > ?",
                (key, self._seconds() - KEPT_SECONDS),
            ).fetchone()
        if row is None:
            return None
        if row[0] != request:
            raise KeyReusedError
        return StoredResponse(row[1], zlib.decompress(row[2]), row[3])

    def keyed(self, key: str, request: bytes, answer: StoredResponse) -> KeyedResponse:
        """Return an answer as `insert_answer` takes it, of this moment."""
        return KeyedResponse(key, request, answer, self._seconds(), self._max_kept)

    def keep(self, key: str, request: bytes, answer: StoredResponse) -> None:
        """Store an answer, durable at return.

        Raises:
            StoreError: it could not be written.
        """
        with self._connections.writing() as connection:
            insert_answer(connection, self.keyed(key, request, answer))

    def _seconds(self) -> float:
        """Return for how long, in all, this data directory has been served."""
        return float(self._served) + monotonic() - self._opened


def insert_answer(connection: sqlite3.Connection, keyed: KeyedResponse) -> None:
    """Store an answer in a transaction of the caller, and forget those that are too old."""
    now = keyed.served_seconds
    connection.execute("UPDATE meta SET served_seconds = max(served_seconds, ?)", (now,))
    connection.execute(
        "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
        (
            keyed.key,
            keyed.request,
            keyed.answer.status,
            keyed.answer.location,
            zlib.compress(keyed.answer.body),
            now,
        ),
    )
    connection.execute("DELETE FROM answers WHERE served_seconds <= ?", (now - KEPT_SECONDS,))
    connection.execute(
        "DELETE FROM answers WHERE rowid IN "
        "(SELECT rowid FROM answers ORDER BY served_seconds DESC LIMIT -1 OFFSET ?)",
        (keyed.max_kept,),
    )


def request_digest(kind: str, body_digest: bytes) -> bytes:
    """Return what tells two requests apart that have one key: their kind and their body."""
    return hashlib.sha256(kind.encode() + b"\0" + body_digest).digest()

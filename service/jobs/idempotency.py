"""Responses stored under the Idempotency-Key of their request, so that a repetition is replayed.

Their age is measured in seconds of service by a monotonic clock and stored with each response: a
wall clock that jumps expires no key, and while the service is down no key ages.
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

RETENTION_SECONDS = 24 * 3600.0
MAX_KEYS = 100_000  # of one collection: a request a second for a day
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it is sent: its status, JSON, and the Location header if there is one."""

    status: int
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedResponse:
    """A response to store.

    Attributes:
        key: the Idempotency-Key of its request.
        request: digest of the request, by `request_digest`.
        response: to replay.
        served_seconds: seconds of service until now.
        max_keys: number of responses to keep; the oldest above it are deleted.
    """

    key: str
    request: bytes
    response: StoredResponse
    served_seconds: float = 0.0
    max_keys: int = 0


class IdempotencyStore:
    """The stored responses of one data directory."""

    def __init__(self, connections: SQLiteConnections, max_keys: int = MAX_KEYS) -> None:
        """Continue the clock of service where the last process stopped.

        Args:
            connections: to the tables.
            max_keys: number of responses to keep; the oldest above it are deleted early.
        """
        self._connections = connections
        self._max_keys = max_keys
        self._lock = threading.Lock()
        self._in_progress: set[str] = set()
        with connections.reading() as connection:
            (served,) = connection.execute("SELECT served_seconds FROM served").fetchone()
        self._served = float(served)
        self._opened = monotonic()

    @contextmanager
    def in_progress(self, key: str | None) -> Iterator[None]:
        """Reject other requests with this key, by KeyInUseError, while the block runs."""
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
        """Return the response that was given to this request, if it is stored.

        KeyReusedError if the key was used for another request.
        """
        if key is None:
            return None
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT request, status, body, location FROM responses "
                "WHERE key = ? AND served_seconds > ?",
                (key, self._seconds() - RETENTION_SECONDS),
            ).fetchone()
        if row is None:
            return None
        if row[0] != request:
            raise KeyReusedError
        return StoredResponse(row[1], zlib.decompress(row[2]), row[3])

    def keyed(self, key: str, request: bytes, response: StoredResponse) -> KeyedResponse:
        """Return a response with what `insert_response` needs to store it now."""
        return KeyedResponse(key, request, response, self._seconds(), self._max_keys)

    def put(self, key: str, request: bytes, response: StoredResponse) -> None:
        """Store a response, durably."""
        with self._connections.writing() as connection:
            insert_response(connection, self.keyed(key, request, response))

    def _seconds(self) -> float:
        """Return how long this data directory has been served, in all."""
        return self._served + monotonic() - self._opened


def insert_response(connection: sqlite3.Connection, keyed: KeyedResponse) -> None:
    """Store a response in the transaction of the caller, and delete expired ones."""
    now = keyed.served_seconds
    connection.execute("UPDATE served SET served_seconds = ? WHERE served_seconds < ?", (now, now))
    connection.execute("DELETE FROM responses WHERE key = ?", (keyed.key,))
    connection.execute(
        "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)",
        (
            keyed.key,
            keyed.request,
            keyed.response.status,
            keyed.response.location,
            zlib.compress(keyed.response.body),
            now,
        ),
    )
    connection.execute(
        "DELETE FROM responses WHERE served_seconds <= ?", (now - RETENTION_SECONDS,)
    )
    connection.execute(
        "DELETE FROM responses WHERE key IN "
        "(SELECT key FROM responses ORDER BY served_seconds DESC LIMIT ? OFFSET ?)",
        (_ALL, keyed.max_keys),
    )


def request_digest(kind: str, body_digest: bytes) -> bytes:
    """Return a digest of the kind and the body of a request, to compare requests of one key."""
    return hashlib.sha256(kind.encode() + b"\0" + body_digest).digest()

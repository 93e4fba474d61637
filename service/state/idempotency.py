"""Responses stored under the Idempotency-Key of their request, so that a repetition is replayed.

Their age is measured in seconds of service by a monotonic clock and stored with each response: a
wall clock that jumps expires no key, and while the service is down no key ages.
"""

import hashlib
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import monotonic

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from service.errors import KeyInUseError, KeyReusedError
from service.state.database import State
from service.state.tables import progress, responses

RETENTION_SECONDS = 24 * 3600.0
MAX_KEYS = 100_000  # of one collection, a request a second for a day; the oldest go early
# Made once: it takes as long to make as to execute.
_FIND = select(responses).where(
    responses.c.key == bindparam("key"), responses.c.served_seconds > bindparam("expired")
)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it is sent: its status, JSON, and the Location header if there is one."""

    status: int
    body: bytes
    location: str | None = None


class IdempotencyStore:
    """The stored responses of one collection."""

    def __init__(self, state: State) -> None:
        """Continue the clock of service where the last process stopped."""
        self._state = state
        self._lock = threading.Lock()
        self._in_progress: set[str] = set()
        with state.reading() as connection:
            self._served = float(connection.scalar(select(progress.c.served_seconds)) or 0.0)
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
        values = {"key": key, "expired": self._seconds() - RETENTION_SECONDS}
        with self._state.reading() as connection:
            row = connection.execute(_FIND, values).first()
        if row is None:
            return None
        if row.request != request:
            raise KeyReusedError
        return StoredResponse(row.status, zlib.decompress(row.body), row.location)

    def put(self, key: str, request: bytes, response: StoredResponse) -> None:
        """Store a response, durably."""
        with self._state.writing() as connection:
            self.insert(key, request, response, connection)

    def insert(
        self, key: str, request: bytes, response: StoredResponse, connection: Connection
    ) -> None:
        """Store the response to a request of a digest, and delete expired ones."""
        now, age = self._seconds(), responses.c.served_seconds
        behind = progress.c.served_seconds < now
        connection.execute(update(progress).where(behind).values(served_seconds=now))
        connection.execute(delete(responses).where(responses.c.key == key))
        row = asdict(response) | {"key": key, "request": request, "served_seconds": now}
        row["body"] = zlib.compress(response.body)
        connection.execute(insert(responses).values(row))
        connection.execute(delete(responses).where(age <= now - RETENTION_SECONDS))
        newest = select(age).order_by(age.desc())
        first_beyond = connection.scalar(newest.limit(1).offset(MAX_KEYS))
        if first_beyond is not None:
            connection.execute(delete(responses).where(age <= first_beyond))

    def _seconds(self) -> float:
        """Return how long this collection has been served, in all."""
        return self._served + monotonic() - self._opened


def request_digest(kind: str, body_digest: bytes) -> bytes:
    """Return a digest of the kind and the body of a request, to compare requests of one key."""
    return hashlib.sha256(kind.encode() + b"\0" + body_digest).digest()

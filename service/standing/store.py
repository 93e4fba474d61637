"""Standing queries and their events: what they are, and the tables that keep them, durable."""

import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.search.records import Bounds, Mode
from index.sqlite.block_vectors import BlockVectors
from index.sqlite.connections import DatabaseFormat, SQLiteConnections, utc_now
from index.store.filters import Filter, filter_from_json, filter_to_json
from service.errors import StandingQueryNotFoundError, TooManyStandingQueriesError

DeliveryState = Literal["active", "retrying", "failed"]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where events are sent, and the secret that signs them: `whsec_` and Base64."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far the webhook of a query has come.

    Attributes:
        delivered: number of the last event that was received.
        attempts: to deliver the one after it, which all failed.
        retry_at: seconds since the epoch before which it is not tried again.
        failed: there will be no other attempt until somebody resumes it.
        failure: why the last attempt failed; None after a success.
    """

    delivered: int = 0
    attempts: int = 0
    retry_at: float = 0.0
    failed: bool = False
    failure: str | None = None

    @property
    def state(self) -> DeliveryState:
        """Whether events are delivered, tried again, or not tried any more."""
        if self.failed:
            return "failed"
        return "retrying" if self.attempts else "active"


@dataclass(frozen=True, slots=True, eq=False)
class QueryText:
    """The text of a standing query as it was encoded."""

    text: str
    vector: Float32
    blocks: BlockVectors
    receipt: Receipt
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What a standing query looks for.

    Attributes:
        document_id: of a stored document, as it is whenever it is compared; None for a text.
        title: of the text, if it has one.
        mode: what new documents are scored by.
        bounds: that a new document must meet; at least one.
        where: a filter that its metadata must pass.
    """

    document_id: str | None
    title: str = ""
    mode: Mode
    bounds: Bounds
    where: Filter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingQuery:
    """A standing query, without its text.

    Attributes:
        number: in the order in which they were made.
        id: its name for clients.
        interest: what it looks for.
        created: ISO 8601 in UTC.
        scanned: every vector up to this id was compared with it.
        detail: why new documents wait and are not compared with it; None if they are.
        fingerprint: of the vectors of its text; None for a stored document.
        receipt: what was read of its text; None for a stored document.
        webhook: where events are sent, if anywhere.
        delivery: how far that has come.
        paused: nothing is compared with it or delivered until somebody ends that.
        revision: how often it was changed.
    """

    number: int
    id: str
    interest: Interest
    created: str
    scanned: int
    detail: str | None
    fingerprint: str | None
    receipt: Receipt | None
    webhook: Webhook | None
    delivery: Delivery
    paused: bool = False
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A new document that a standing query matches.

    Attributes:
        document_id: of the document.
        title: of the document.
        score: as POST /match gives it.
        scored_as: the mode whose score it is.
        probability: that it is a match; None where that is not calibrated.
        false_positive_rate: share of random pairs that score as high; None likewise.
    """

    document_id: str
    title: str
    score: float
    scored_as: Mode
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class Event:
    """A match that was stored.

    Attributes:
        number: ascending over all queries of the collection, and never given twice.
        query_id: of the standing query.
        created: ISO 8601 in UTC.
        found: the document.
    """

    number: int
    query_id: str
    created: str
    found: Found

    def to_json(self) -> dict[str, Any]:
        """Return the event as clients and webhooks get it."""
        return {
            "number": self.number,
            "query": self.query_id,
            "created": self.created,
            "document": self.found.document_id,
            "title": self.found.title,
            "score": self.found.score,
            "scored_as": self.found.scored_as,
            "probability": self.found.probability,
            "false_positive_rate": self.found.false_positive_rate,
        }


@dataclass(frozen=True, slots=True)
class Scan:
    """What comparing one query with some new documents gave.

    Attributes:
        query: the query, as it was before.
        scanned: every vector up to this id was compared.
        found: the documents that match.
    """

    query: StandingQuery
    scanned: int
    found: tuple[Found, ...]


STANDING_FILE = "standing.sqlite3"

# Numbers are never reused (AUTOINCREMENT): clients resume after the last event that they have seen.
# `space` is the fingerprint of the vectors whose ids `scanned` is one of. The columns of `queries`
# that are long come last.
_SCHEMA = """
CREATE TABLE meta (
    space TEXT NOT NULL
);
CREATE TABLE queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    interest TEXT NOT NULL,
    created TEXT NOT NULL,
    scanned INTEGER NOT NULL,
    detail TEXT,
    fingerprint TEXT,
    receipt TEXT,
    url TEXT,
    secret TEXT,
    delivered INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_at REAL NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    failure TEXT,
    paused INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL,
    offsets BLOB,
    vector BLOB,
    blocks BLOB,
    text TEXT
);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    query INTEGER NOT NULL REFERENCES queries ON DELETE CASCADE,
    created TEXT NOT NULL,
    document TEXT NOT NULL,
    title TEXT NOT NULL,
    score REAL NOT NULL,
    scored_as TEXT NOT NULL,
    probability REAL,
    false_positive_rate REAL
);
CREATE INDEX events_by_query ON events (query);
INSERT INTO meta VALUES ('')"""
_STANDING = DatabaseFormat("standing queries", 0x4C4D5351, 3, _SCHEMA)

QUERY_COLUMNS = (
    "number, id, interest, created, scanned, detail, fingerprint, receipt, url, secret, "
    "delivered, attempts, retry_at, failed, failure, paused, revision"
)
_OF_TEXTS = ("fingerprint", "receipt", "offsets", "vector", "blocks", "text")
TEXT_COLUMNS = ", ".join(_OF_TEXTS)
EVENT_COLUMNS = (
    "events.number, queries.id, events.created, document, title, score, scored_as, probability, "
    "false_positive_rate"
)


def open_standing_tables(path: Path, *, read_only: bool = False) -> SQLiteConnections:
    """Open the tables; create them if there is no file."""
    return SQLiteConnections(path, read_only=read_only, kind=_STANDING)


def interest_to_json(interest: Interest) -> str:
    """Return what a query looks for as JSON."""
    where = None if interest.where is None else filter_to_json(interest.where)
    return json.dumps(
        {
            "document_id": interest.document_id,
            "title": interest.title,
            "mode": interest.mode,
            "bounds": asdict(interest.bounds),
            "where": where,
        }
    )


def to_query(row: tuple[Any, ...]) -> StandingQuery:
    """Return the query of a row of `QUERY_COLUMNS`."""
    number, name, interest, created, scanned, detail, fingerprint, receipt, url, secret = row[:10]
    delivered, attempts, retry_at, failed, failure, paused, revision = row[10:]
    return StandingQuery(
        number=number,
        id=name,
        interest=_to_interest(json.loads(interest)),
        created=created,
        scanned=scanned,
        detail=detail,
        fingerprint=fingerprint,
        receipt=None if receipt is None else Receipt(**json.loads(receipt)),
        webhook=None if url is None else Webhook(url, secret),
        delivery=Delivery(delivered, attempts, retry_at, bool(failed), failure),
        paused=bool(paused),
        revision=revision,
    )


def to_event(row: tuple[Any, ...]) -> Event:
    """Return the event of a row of `EVENT_COLUMNS`."""
    number, query_id, created, *found = row
    return Event(number, query_id, created, Found(*found))


def from_text(text: QueryText | None) -> dict[str, Any]:
    """Return the columns of an encoded text; all are null for a stored document."""
    if text is None:
        return dict.fromkeys(_OF_TEXTS)
    return {
        "fingerprint": text.fingerprint,
        "receipt": json.dumps(asdict(text.receipt)),
        "offsets": text.blocks.offsets.astype("<i8").tobytes(),
        "vector": text.vector.astype("<f4").tobytes(),
        "blocks": text.blocks.vectors.astype("<f4").tobytes(),
        "text": text.text,
    }


def to_text(row: tuple[Any, ...]) -> QueryText:
    """Return the text of a row of `TEXT_COLUMNS`."""
    fingerprint, receipt, offsets, vector, blocks, text = row
    places = np.frombuffer(offsets, dtype="<i8").astype(np.int64).reshape(-1, 2)
    return QueryText(
        text,
        _numbers(vector),
        BlockVectors(places, _numbers(blocks).reshape(len(places), -1)),
        Receipt(**json.loads(receipt)),
        fingerprint,
    )


def _to_interest(content: dict[str, Any]) -> Interest:
    where = content["where"]
    return Interest(
        document_id=content["document_id"],
        title=content["title"],
        mode=content["mode"],
        bounds=Bounds(**content["bounds"]),
        where=None if where is None else filter_from_json(where),
    )


def _numbers(content: bytes) -> Float32:
    return np.frombuffer(content, dtype="<f4").astype(np.float32)


_FIND = f"SELECT {QUERY_COLUMNS} FROM queries WHERE id = ?"  # noqa: S608
_PAGE = f"SELECT {QUERY_COLUMNS} FROM queries WHERE number > ? ORDER BY number LIMIT ?"  # noqa: S608
_TEXT = f"SELECT {TEXT_COLUMNS} FROM queries WHERE number = ?"  # noqa: S608
_INSERT_EVENT = """
INSERT INTO events (query, created, document, title, score, scored_as, probability,
    false_positive_rate)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
# A query that was removed or changed meanwhile, or compared already, gets no event.
_ADVANCE = """
UPDATE queries SET scanned = ? WHERE number = ? AND scanned = ? AND revision = ?"""
_CHANGE = """
UPDATE queries SET interest = ?, url = ?, secret = ?, paused = ?, delivered = ?, attempts = ?,
    retry_at = ?, failed = ?, failure = ?, revision = revision + 1
WHERE number = ?"""
_LAST_EVENT = "SELECT coalesce(max(number), 0) FROM events WHERE query = ?"
MAX_BYTES = 256 * 2**20  # of the texts of one collection: a megabyte for each of 256 books
MAX_EVENTS = 10_000  # of one query: a client that reads its events once a day misses none
_EVERY = -1  # as SQLite has no limit
_FORGET_EVENTS = """
DELETE FROM events WHERE query = ?1 AND number <= (
    SELECT number FROM events WHERE query = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"""


class QueryStore:
    """The standing queries of one data directory. Safe to use from many threads."""

    def __init__(
        self,
        connections: SQLiteConnections,
        *,
        max_queries: int,
        max_bytes: int = MAX_BYTES,
        max_events: int = MAX_EVENTS,
    ) -> None:
        """Use open tables.

        Args:
            connections: to the tables.
            max_queries: that there may be.
            max_bytes: of their texts together, in UTF-8.
            max_events: that are kept of each; older ones are deleted.
        """
        self._connections = connections
        self._max_queries = max_queries
        self._max_bytes = max_bytes
        self._max_events = max_events

    def __len__(self) -> int:
        with self._connections.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM queries").fetchone()[0])

    def check_room(self, text_bytes: int) -> None:
        """Check that there is room for one more, before its text is encoded."""
        with self._connections.reading() as connection:
            self._check_room(connection, text_bytes)

    def add(
        self, interest: Interest, text: QueryText | None, webhook: Webhook | None, scanned: int
    ) -> StandingQuery:
        """Store a new query, durably.

        Args:
            interest: what it looks for.
            text: encoded; None for a stored document.
            webhook: where to tell its events, if anywhere.
            scanned: the last vector id that is not new to it.
        """
        size = 0 if text is None else len(text.text.encode())
        columns = {
            "id": uuid.uuid4().hex,
            "interest": interest_to_json(interest),
            "created": utc_now(),
            "scanned": scanned,
            "url": None if webhook is None else webhook.url,
            "secret": None if webhook is None else webhook.secret,
            "bytes": size,
            **from_text(text),
        }
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        with self._connections.writing() as connection:
            self._check_room(connection, size)
            connection.execute(
                f"INSERT INTO queries ({names}) VALUES ({marks})",  # noqa: S608
                tuple(columns.values()),
            )
            return _find(connection, columns["id"])

    def find(self, query_id: str) -> StandingQuery:
        """Return a query."""
        with self._connections.reading() as connection:
            return _find(connection, query_id)

    def listed(self, after: str, limit: int) -> list[StandingQuery]:
        """Return up to `limit` queries as they were made, after this id, "" for the first."""
        with self._connections.reading() as connection:
            number = _find(connection, after).number if after else 0
            return [to_query(row) for row in connection.execute(_PAGE, (number, limit))]

    def change(
        self, query_id: str, change: Callable[[StandingQuery], StandingQuery]
    ) -> StandingQuery:
        """Change the bounds, the webhook or the pause of a query, durably.

        What is being compared with it meanwhile is compared again. A webhook where there was none
        gets what is found from now on; another one goes on where the former one was.
        What `change` raises leaves the query as it is.
        """
        with self._connections.writing() as connection:
            before = _find(connection, query_id)
            after = change(before)
            webhook, delivery = after.webhook, before.delivery
            if webhook != before.webhook:
                delivery = Delivery(delivery.delivered)
            if before.webhook is None and webhook is not None:
                (last,) = connection.execute(_LAST_EVENT, (before.number,)).fetchone()
                delivery = replace(delivery, delivered=last)
            connection.execute(
                _CHANGE,
                (
                    interest_to_json(after.interest),
                    None if webhook is None else webhook.url,
                    None if webhook is None else webhook.secret,
                    *(after.paused, delivery.delivered, delivery.attempts, delivery.retry_at),
                    *(delivery.failed, delivery.failure, before.number),
                ),
            )
            return _find(connection, query_id)

    def remove(self, query_id: str) -> None:
        """Remove a query and its events, or raise StandingQueryNotFoundError."""
        with self._connections.writing() as connection:
            done = connection.execute("DELETE FROM queries WHERE id = ?", (query_id,))
            if not done.rowcount:
                raise StandingQueryNotFoundError(query_id)

    def every(self) -> list[StandingQuery]:
        """Return all of them, without their texts."""
        return self.listed("", _EVERY)

    def read_text(self, query: StandingQuery) -> QueryText | None:
        """Return the text of a query; None if it has none, or was removed."""
        with self._connections.reading() as connection:
            row = connection.execute(_TEXT, (query.number,)).fetchone()
        return None if row is None or row[0] is None else to_text(row)

    def put_text(self, query: StandingQuery, text: QueryText) -> None:
        """Replace the encoded text of a query by that of another checkpoint."""
        columns = from_text(text)
        names = ", ".join(f"{name} = ?" for name in columns)
        with self._connections.writing() as connection:
            connection.execute(
                f"UPDATE queries SET {names} WHERE number = ?",  # noqa: S608
                (*columns.values(), query.number),
            )

    def hold(self, query: StandingQuery, detail: str | None) -> None:
        """Record why new documents wait and are not compared with a query; None if they are."""
        if query.detail != detail:
            with self._connections.writing() as connection:
                connection.execute(
                    "UPDATE queries SET detail = ? WHERE number = ?", (detail, query.number)
                )

    def advance(self, scans: Sequence[Scan]) -> int:
        """Record what comparisons found, each once, in one transaction; return how many events."""
        events = 0
        with self._connections.writing() as connection:
            for scan in scans:
                query = scan.query
                done = connection.execute(
                    _ADVANCE, (scan.scanned, query.number, query.scanned, query.revision)
                )
                if done.rowcount and scan.found:
                    self._tell(connection, scan)
                    events += len(scan.found)
        return events

    def follow(self, space: str, last: int) -> bool:
        """Let queries follow a store; call it before any comparison.

        Vector ids of another space are those of another store. What is in it now is not new: it
        was made of the documents of the former one.

        Args:
            space: fingerprint of the vectors of the store.
            last: the last vector id that the store gave.

        Returns:
            Whether there was no query, or none of another space.
        """
        with self._connections.reading() as connection:
            (known,) = connection.execute("SELECT space FROM meta").fetchone()
            (furthest,) = connection.execute("SELECT max(scanned) FROM queries").fetchone()
        if known == space and (furthest is None or furthest <= last):
            return True  # and a full disk does not keep the service from starting
        with self._connections.writing() as connection:
            connection.execute("UPDATE meta SET space = ?", (space,))
            if known or (furthest or 0) > last:  # else they came after a start on a full disk
                connection.execute("UPDATE queries SET scanned = ?", (last,))
                return furthest is None
        return True

    def _tell(self, connection: sqlite3.Connection, scan: Scan) -> None:
        number, now = scan.query.number, utc_now()
        connection.executemany(
            _INSERT_EVENT,
            [
                (
                    *(number, now, match.document_id, match.title, match.score, match.scored_as),
                    *(match.probability, match.false_positive_rate),
                )
                for match in scan.found
            ],
        )
        connection.execute(_FORGET_EVENTS, (number, self._max_events))

    def _check_room(self, connection: sqlite3.Connection, size: int) -> None:
        count, used = connection.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM queries"
        ).fetchone()
        if count >= self._max_queries:
            raise TooManyStandingQueriesError(self._max_queries, "queries (max_standing_queries)")
        if used + size > self._max_bytes:
            raise TooManyStandingQueriesError(self._max_bytes, "bytes of texts")


def _find(connection: sqlite3.Connection, query_id: str) -> StandingQuery:
    row = connection.execute(_FIND, (query_id,)).fetchone()
    if row is None:
        raise StandingQueryNotFoundError(query_id)
    return to_query(row)


_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events JOIN queries ON queries.number = query"  # noqa: S608
_OF_ALL = f"{_EVENTS} WHERE events.number > ? ORDER BY events.number LIMIT ?"
_OF_ONE = f"{_EVENTS} WHERE query = ? AND events.number > ? ORDER BY events.number LIMIT ?"
_LAST = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'"
_WAITING = "EXISTS (SELECT 1 FROM events WHERE query = queries.number AND number > delivered)"
_UNDELIVERED = f"""
SELECT {QUERY_COLUMNS} FROM queries
WHERE url IS NOT NULL AND NOT failed AND NOT paused AND {_WAITING}
ORDER BY retry_at"""  # noqa: S608
_RECORD = """
UPDATE queries SET delivered = max(delivered, ?1), attempts = ?2, retry_at = ?3, failed = ?4,
    failure = ?5
WHERE number = ?6 AND url = ?7 AND (secret = ?8 OR NOT ?2)
RETURNING NOT paused AND secret = ?8"""
_RESUME = """
UPDATE queries SET attempts = 0, retry_at = 0, failed = 0 WHERE id = ? AND url IS NOT NULL"""


class EventStore:
    """The events of the standing queries of one data directory. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections) -> None:
        self._connections = connections

    @property
    def last(self) -> int:
        """The number of the last event that was ever stored; 0 before the first."""
        with self._connections.reading() as connection:
            return int(connection.execute(_LAST).fetchone()[0])

    def after(self, number: int, limit: int, query: StandingQuery | None = None) -> list[Event]:
        """Return up to `limit` events after a number, 0 for the first, of a query or of all."""
        with self._connections.reading() as connection:
            if query is None:
                rows = connection.execute(_OF_ALL, (number, limit))
            else:
                rows = connection.execute(_OF_ONE, (query.number, number, limit))
            return [to_event(row) for row in rows]

    def undelivered(self) -> list[StandingQuery]:
        """Return the queries whose webhooks have an event to deliver, those due first."""
        with self._connections.reading() as connection:
            return [to_query(row) for row in connection.execute(_UNDELIVERED)]

    def record(self, query: StandingQuery, delivery: Delivery) -> bool:
        """Record how far the webhook of a query has come; nothing of one that is another by now.

        What was received stays received where the secret is another one; a failure does not count
        then.

        Returns:
            Whether the next event may be delivered to it.
        """
        webhook = query.webhook
        if webhook is None:
            raise ValueError("a query without a webhook has nothing delivered")
        values = (
            *(delivery.delivered, delivery.attempts, delivery.retry_at, delivery.failed),
            *(delivery.failure, query.number, webhook.url, webhook.secret),
        )
        with self._connections.writing() as connection:
            row = connection.execute(_RECORD, values).fetchone()
        return row is not None and bool(row[0])

    def resume(self, query_id: str) -> None:
        """Let a webhook be tried again at once, or raise StandingQueryNotFoundError."""
        with self._connections.writing() as connection:
            connection.execute(_RESUME, (query_id,))
            found = connection.execute("SELECT 1 FROM queries WHERE id = ?", (query_id,))
            if found.fetchone() is None:
                raise StandingQueryNotFoundError(query_id)

    def count(self) -> dict[str, int]:
        """Count the queries: all, those that wait or are paused, those whose webhooks failed."""
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT count(*), count(detail), coalesce(sum(failed), 0), "
                "coalesce(sum(paused), 0) FROM queries"
            ).fetchone()
            return dict(zip(("all", "waiting", "failed", "paused"), row, strict=True))

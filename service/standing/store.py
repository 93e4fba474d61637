"""The standing queries of a data directory, durable; `service.standing.events` has their events."""

import sqlite3
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from index.sqlite.connections import SQLiteConnections, utc_now
from service.errors import StandingQueryNotFoundError, TooManyStandingQueriesError
from service.standing.query import (
    Delivery,
    Interest,
    QueryText,
    Scan,
    StandingQuery,
    Webhook,
)
from service.standing.tables import (
    QUERY_COLUMNS,
    TEXT_COLUMNS,
    from_text,
    interest_to_json,
    to_query,
    to_text,
)

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
        """Check that there is room for one more, before its text is encoded.

        Raises:
            TooManyStandingQueriesError: there is none.
            StoreError: the tables cannot be read, or there is no file of them.
        """
        if self._connections.lost is not None:
            raise self._connections.lost
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

        Raises:
            TooManyStandingQueriesError: there are as many, or as long ones, as there may be.
            StoreError: it could not be written; there is no such query.
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
        """Return a query.

        Raises:
            StandingQueryNotFoundError: there is none of this id.
        """
        with self._connections.reading() as connection:
            return _find(connection, query_id)

    def listed(self, after: str, limit: int) -> list[StandingQuery]:
        """Return at most `limit` queries in the order in which they were made.

        Args:
            after: id of the last one before; "" for the first ones.
            limit: how many.

        Raises:
            StandingQueryNotFoundError: there is none of the id `after`.
        """
        with self._connections.reading() as connection:
            number = _find(connection, after).number if after else 0
            return [to_query(row) for row in connection.execute(_PAGE, (number, limit))]

    def change(
        self, query_id: str, change: Callable[[StandingQuery], StandingQuery]
    ) -> StandingQuery:
        """Change the bounds, the webhook or the pause of a query, durably.

        What is being compared with it meanwhile is compared again. A webhook where there was none
        gets what is found from now on; another one goes on where the former one was.

        Args:
            query_id: of the query.
            change: returns what it is to be; what it raises leaves the query as it is.

        Raises:
            StandingQueryNotFoundError: there is none of this id.
            StoreError: it could not be written.
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
        """Remove a query and its events.

        Raises:
            StandingQueryNotFoundError: there is none of this id.
            StoreError: it could not be removed.
        """
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
            connection.execute("UPDATE queries SET scanned = ?", (last,))
        return furthest is None

    def _tell(self, connection: sqlite3.Connection, scan: Scan) -> None:
        number, now = scan.query.number, utc_now()
        connection.executemany(
            _INSERT_EVENT,
            [
                (
                    *(number, now, one.document_id, one.title, one.score, one.scored_as),
                    *(one.probability, one.false_positive_rate),
                )
                for one in scan.found
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

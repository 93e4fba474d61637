"""The events of standing queries: read by clients, and delivered to webhooks in their order."""

from index.sqlite.connections import SQLiteConnections
from service.errors import StandingQueryNotFoundError
from service.standing.query import Delivery, Event, StandingQuery
from service.standing.tables import EVENT_COLUMNS, QUERY_COLUMNS, to_event, to_query

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
        """Return the first events after one, of a query or of all.

        Args:
            number: of the event before; 0 for the first that are kept.
            limit: how many at most.
            query: whose they are; None for those of all.
        """
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
        """Let the webhook of a query be tried again at once.

        Raises:
            StandingQueryNotFoundError: there is none of this id.
        """
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

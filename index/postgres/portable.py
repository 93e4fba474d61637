"""Statements that SQLite and PostgreSQL both understand, run in PostgreSQL.

Tables beside the documents, such as those of jobs, have one set of statements for both: values are
`?`, and the tables of a schema need no prefix.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from index.errors import StorageError
from index.postgres.connections import PostgreSQLConnections, Session

if TYPE_CHECKING:
    import psycopg

_SEARCH_PATH = "SET LOCAL search_path TO {s}"
_TABLE = """
SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = %s"""
# Two processes that make the tables at once: the second one waits, and finds them.
_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))"""


class PortableSession:
    """A connection inside a transaction, used as one of SQLite is."""

    def __init__(self, session: Session) -> None:
        session.run(_SEARCH_PATH)
        self._connection = session.connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> "psycopg.Cursor[Any]":
        """Run a statement with values in the place of each `?`."""
        return self._connection.execute(_statement(sql), [_value(one) for one in parameters])

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each of these rows of values; see `Session.insert`."""
        for row in rows:
            self.execute(sql, row)


class PortableConnections:
    """Connections to the tables of a schema; each error is a `StoreError`, as of a store."""

    lost: StorageError | None = None
    failure: StorageError | None = None

    def __init__(self, connections: PostgreSQLConnections, name: str, schema: str) -> None:
        """Use connections, which are closed with this object.

        Args:
            connections: to the database.
            name: of one of the tables.
            schema: statements that make the tables, if that one is missing.

        Raises:
            StoreError: they cannot be made.
        """
        self._connections = connections
        named = connections.address.schema
        with connections.reading() as session:
            if session.value(_TABLE, named, name):
                return
        with connections.writing() as session:
            session.rows(_LOCK, f"longmatch {named}")
            if not session.value(_TABLE, named, name):
                portable = PortableSession(session)
                for statement in schema.split(";\n"):
                    portable.execute(statement)

    @contextmanager
    def reading(self) -> Iterator[PortableSession]:
        """Lend a session inside a transaction that reads: all statements see one state."""
        with self._connections.reading() as session:
            yield PortableSession(session)

    @contextmanager
    def writing(self) -> Iterator[PortableSession]:
        """Lend a session inside a transaction that writes: committed as a whole, or undone."""
        with self._connections.writing() as session:
            yield PortableSession(session)

    def close(self) -> None:
        """Close every connection."""
        self._connections.close()


def _statement(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _value(value: object) -> object:
    """Return a value as PostgreSQL can hold it: no text of it has U+0000 or a lone surrogate."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()

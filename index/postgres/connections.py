"""Connections to a PostgreSQL: a pool, transactions, and errors that name the store.

This folder alone imports psycopg for a store, and only when one is used. Nothing is kept in a
session between two transactions: any connection is as good as another.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from index.errors import DatabaseUnavailableError, StorageFullError, StoreError
from index.postgres.address import PostgreSQLAddress

if TYPE_CHECKING:
    import psycopg

MOST_CONNECTIONS = 8  # of one process; a server has 100 for all by default
LOCK_SECONDS = 30  # that a write waits for those of other processes
PAUSE_SECONDS = 15  # after which the write of a process that was paused is undone
OLDEST_SERVER = 14  # the first whose numbers can be infinite

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# The write of a process that is paused holds up those of others, which outlast it.
_WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{PAUSE_SECONDS}s'"
)
_VALUES = re.compile(r"\(%s(?:, %s)*\)")
_ROWS_A_STATEMENT = 100
_FULL = ("53100",)
# Connections, resources, an operator's intervention, the system, read only, locks, permissions.
_UNAVAILABLE = ("08", "53", "57", "58", "25006", "55P03", "25P03", "42501", "28", "3D000")


class Session:
    """A connection inside a transaction, and the schema whose tables it uses."""

    def __init__(self, connection: "psycopg.Connection[Any]", schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement, `{s}` being the schema, and return its rows."""
        return self._execute(statement, values).fetchall()

    def first(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        """Run a statement and return its first row; None without a row."""
        row: tuple[Any, ...] | None = self._execute(statement, values).fetchone()
        return row

    def value(self, statement: str, *values: object) -> Any:
        """Run a statement and return the first value of its first row; None without a row."""
        row = self.first(statement, *values)
        return None if row is None else row[0]

    def run(self, statement: str, *values: object) -> int:
        """Run a statement and return how many rows it changed."""
        return self._execute(statement, values).rowcount

    def insert(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement that inserts one row of `VALUES (%s, …)` for all of these.

        Not by `executemany`: it sends statements without waiting, and PostgreSQL never ends the
        transaction of a process that is paused between two of those.
        """
        (one,) = _VALUES.findall(statement)
        for start in range(0, len(rows), _ROWS_A_STATEMENT):
            some = rows[start : start + _ROWS_A_STATEMENT]
            values = [value for row in some for value in row]
            self.run(statement.replace(one, ", ".join([one] * len(some))), *values)

    def _execute(self, statement: str, values: Sequence[object]) -> "psycopg.Cursor[Any]":
        return self.connection.execute(self._statement(statement), values or None, binary=True)

    def _statement(self, statement: str) -> bytes:
        # The names of schemas have no character that would need quotes: see `address`.
        return statement.replace("{s}", f'"{self.schema}"').encode()


class PostgreSQLConnections:
    """Connections to one database, which no two threads share; safe to use from many threads.

    Every error of the database is raised as a `StoreError` in one line, without a password.
    """

    def __init__(self, address: PostgreSQLAddress, *, read_only: bool = False) -> None:
        """Connect once, and check the server.

        Raises:
            DatabaseUnavailableError: the server cannot be reached, or refuses the connection.
            StoreError: it is too old, or the encoding of the database is not UTF-8.
        """
        self.address = address
        self._read_only = read_only
        self._idle: list[psycopg.Connection[Any]] = []
        self._changing = threading.Lock()
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._closed = False
        with self._translated_errors():
            connection = self._connect()
            try:
                _check_server(address, connection)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Lend a session inside a transaction that reads: all statements see one state."""
        with self._transaction(_READ) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Lend a session inside a transaction that writes: committed as a whole, or undone.

        At return it is as durable as `synchronous_commit` of the server makes it.
        """
        if self._read_only:
            self._check_open()
            raise StoreError(f"{self.address}: the store was opened for reading only")
        with self._transaction(_WRITE) as session:
            yield session

    def peek(self, statement: str) -> tuple[Any, ...]:
        """Run a statement that reads, in one step without a transaction, and return its first row.

        Raises:
            StoreError: it could not be run, or gives no row.
        """
        self._check_open()
        with self._slots, self._translated_errors():
            connection, row = self._first_row(statement)
            self._give_back(connection)
        if row is None:
            raise StoreError(f"{self.address}: the store is damaged: it does not count its writes")
        return tuple(row)

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
        with self._changing:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Session]:
        self._check_open()
        with self._slots, self._translated_errors():
            connection = self._begin(begin)
            try:
                yield Session(connection, self.address.schema)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(Exception):
                    connection.execute("ROLLBACK")
                self._give_back(connection)
                raise
            self._give_back(connection)

    def _first_row(self, statement: str) -> "tuple[psycopg.Connection[Any], Any]":
        """Run a statement on an idle connection, or a new one, and return both."""
        import psycopg

        while True:
            with self._changing:
                known = self._idle.pop() if self._idle else None
            connection = known or self._connect()
            try:
                row = Session(connection, self.address.schema).first(statement)
            except psycopg.Error as error:
                connection.close()
                if known is None or not isinstance(error, psycopg.OperationalError):
                    raise
            else:
                return connection, row

    def _begin(self, begin: str) -> "psycopg.Connection[Any]":
        """Return a connection in a new transaction; idle ones may be of a server that is gone."""
        import psycopg

        while True:
            with self._changing:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._connect()
                connection.execute(begin.encode())
                return connection
            try:
                connection.execute(begin.encode())
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection

    def _connect(self) -> "psycopg.Connection[Any]":
        import psycopg
        from psycopg.pq import Format
        from psycopg.types.string import TextBinaryLoader, TextLoader

        # A stored text may be no UTF-8 any more. Its checksum tells; an error would name no row.
        class AnyTextLoader(TextLoader):
            def load(self, data: Any) -> str:
                return bytes(data).decode("utf-8", "replace")

        class AnyTextBinaryLoader(TextBinaryLoader, AnyTextLoader):
            format = Format.BINARY

        connection = psycopg.connect(
            self.address.conninfo,
            autocommit=True,  # transactions are explicit: BEGIN, COMMIT, ROLLBACK
            prepare_threshold=None,
            client_encoding="utf8",
        )
        connection.adapters.register_loader("text", AnyTextLoader)
        connection.adapters.register_loader("text", AnyTextBinaryLoader)
        return connection

    def _give_back(self, connection: "psycopg.Connection[Any]") -> None:
        from psycopg.pq import TransactionStatus

        with self._changing:
            idle = connection.info.transaction_status is TransactionStatus.IDLE
            if idle and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.address}: the store is closed")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            # What it was raised from may quote the address, with the password.
            raise translated(self.address, error) from None
        except UnicodeEncodeError as error:
            raise ValueError(f"a text is not UTF-8: {error.reason}") from None


def translated(address: PostgreSQLAddress, error: "psycopg.Error") -> StoreError:
    """Return an error of the database as the one that a store raises."""
    import psycopg

    text = " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__
    if address.password:
        text = text.replace(address.password, "…")
    code = error.sqlstate or ""
    if code in _FULL:
        return StorageFullError(address, text)
    lost = not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if lost or code.startswith(_UNAVAILABLE):
        return DatabaseUnavailableError(address, text)
    return StoreError(f"{address}: {text}")


def check_version(address: PostgreSQLAddress, version: int) -> None:
    """Check the version of a server, as libpq gives it: 150004 is 15.4.

    Raises:
        StoreError: it is too old.
    """
    if version < OLDEST_SERVER * 10_000:
        raise StoreError(
            f"{address}: PostgreSQL {version // 10_000} is too old: {OLDEST_SERVER} or later "
            "is needed"
        )


def _check_server(address: PostgreSQLAddress, connection: "psycopg.Connection[Any]") -> None:
    check_version(address, connection.info.server_version)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"{address}: the encoding of the database is {encoding}; UTF8 is needed")

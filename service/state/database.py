"""Where the tables of a collection are: a file of its data directory, or a schema of PostgreSQL.

Both commit durably before a write returns, and let one write at a time change a collection.
"""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from index.directory.backup import STATE_FILE
from index.errors import StorageError, StoreError
from index.optional_dependencies import require_extra
from index.sqlite.connections import DatabaseFormat, SQLiteConnections
from index.store.database import Connections
from index.store.schema import collection_name
from service.settings import Settings
from service.state.tables import FORMAT, METADATA, progress

_BEGINNING = {"format": FORMAT, "space": "", "served_seconds": 0.0}
_KIND = 0x4C4D5354


class _Lent:
    """A connection of `Connections`, which ends its transactions and keeps it open."""

    def __init__(self, connection: Any) -> None:
        self._connection = getattr(connection, "raw", connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        """Do nothing."""

    commit = rollback = close


_LENT = threading.local()  # its `connection` is what the engine connects to next in this thread


@cache
def _engine_of(dialect: sa.Dialect) -> sa.Engine:
    """Return the engine of all states of a dialect: it keeps how statements are compiled."""
    options = {"use_native_hstore": False} if dialect.name == "postgresql" else {}
    return sa.create_engine(
        f"{dialect.name}+{dialect.driver}://",
        creator=lambda: cast(Any, _LENT.connection),
        poolclass=sa.NullPool,
        **options,
    )


class State:
    """The tables of one collection. Safe to use from many threads.

    Attributes:
        shared: whether other servers may use them.
    """

    def __init__(self, connections: Connections, dialect: sa.Dialect) -> None:
        """Use the connections of a database, which has the tables."""
        self.shared = connections.shared
        self._connections = connections
        self._engine = _engine_of(dialect)

    @property
    def failure(self) -> StorageError | None:
        """What kept the last transaction from being written; None if nothing did."""
        return self._connections.failure

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""
        with self._connections.reading() as lent, self._over(lent) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Lend a connection inside the only write transaction: committed and durable, or undone."""
        with self._connections.writing() as lent, self._over(lent) as connection:
            yield connection

    def close(self) -> None:
        """Close every connection; closing twice does nothing."""
        self._connections.close()

    @contextmanager
    def _over(self, lent: object) -> Iterator[sa.Connection]:
        _LENT.connection = _Lent(lent)
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:  # `Connections` knows what errors mean
            raise error.orig or error from None


@cache
def _script(dialect: sa.Dialect) -> str:
    tables = METADATA.sorted_tables
    made: list[sa.ClauseElement] = [CreateTable(table) for table in tables]
    made += [CreateIndex(index) for table in tables for index in table.indexes]
    made.append(sa.insert(progress).values(_BEGINNING))
    literal = {"literal_binds": True}
    return ";".join(
        str(statement.compile(dialect=dialect, compile_kwargs=literal)) for statement in made
    )


_SQLITE = sqlite.dialect()
_POSTGRESQL = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]


def open_state(data: Path, database: str | None = None, *, read_only: bool = False) -> State:
    """Open the state of a data directory; it is created if it is missing, unless `read_only`.

    Where a full disk has no room for a new file, there is none and every write is refused.
    """
    if database is None:
        kind = DatabaseFormat("state", _KIND, FORMAT, _script(_SQLITE))
        file = SQLiteConnections(data / STATE_FILE, read_only=read_only, kind=kind)
        return State(file, _SQLITE)
    require_extra("postgresql", "PostgreSQL", "psycopg")
    from index.postgresql.connections import PostgreSQLConnections  # optional

    name = collection_name(data)
    opened = PostgreSQLConnections(database, name, progress.name, read_only=read_only)
    try:
        opened.create_if_missing(FORMAT, _script(_POSTGRESQL))
    except BaseException:
        opened.close()
        raise
    return State(opened, _POSTGRESQL)


@contextmanager
def existing_state(data: Path, *, read_only: bool = True) -> Iterator[State | None]:
    """Open the state of a data directory while a block runs; None if there is none.

    The setting `database` says where it is.
    """
    database = Settings().database
    if database is None and not (data / STATE_FILE).exists():
        yield None
        return
    try:
        state = open_state(data, database, read_only=read_only)
    except StorageError:
        raise
    except StoreError:
        if database is None:
            raise
        yield None
        return
    with closing(state):
        yield state

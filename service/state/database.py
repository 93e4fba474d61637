"""Where the tables of a collection are: a file of its data directory, or a schema of PostgreSQL.

Both commit durably before a write returns, and let one write at a time change a collection.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable, DropSchema

from index.directory.backup import STATE_FILE
from index.errors import StorageError, StoreError
from index.optional_dependencies import require_extra
from index.sqlite.connections import DatabaseFormat, SQLiteConnections
from index.store.schema import collection_name, schema_name
from service.errors import SettingsError
from service.settings import Settings
from service.state.tables import FORMAT, METADATA, progress

_BEGINNING = {"format": FORMAT, "space": "", "served_seconds": 0.0}
_TIMEOUTS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}  # seconds, milliseconds
_KIND = 0x4C4D5354  # of a file
_COLLECTIONS = sa.text("""
SELECT split_part(obj_description(c.oid), ' ', 2) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'meta' AND n.nspname LIKE 'longmatch\\_%'""")


class State(Protocol):
    """The tables of one collection. Safe to use from many threads.

    Attributes:
        shared: whether other servers may use them.
    """

    shared: bool

    @property
    def failure(self) -> StorageError | None:
        """What keeps anything from being stored; None if nothing does."""

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Lend a connection inside the only write transaction: committed and durable, or undone."""

    def close(self) -> None:
        """Close it; closing twice does nothing."""


class _Lent:
    """A connection of `SQLiteConnections`, which ends its transactions and keeps it open."""

    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        """Do nothing."""

    commit = rollback = close


class SQLiteState:
    """The tables in a file, which the mode 0600 hides from others."""

    shared = False

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; create it if it is missing, unless `read_only`."""
        self._connections = SQLiteConnections(path, read_only=read_only, kind=_sqlite_format())
        self._lent = threading.local()
        self._engine = sa.create_engine(
            "sqlite://", creator=lambda: cast(Any, self._lent.connection), poolclass=sa.NullPool
        )

    @property
    def failure(self) -> StorageError | None:
        """The failure of the disk that the last write met; None while it is full no more."""
        return self._connections.failure

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Lend a connection inside a read transaction."""
        with self._connections.reading() as lent, self._over(lent) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Lend the connection that writes, inside a transaction."""
        with self._connections.writing() as lent, self._over(lent) as connection:
            yield connection

    def close(self) -> None:
        """Close the file."""
        self._connections.close()

    @contextmanager
    def _over(self, lent: object) -> Iterator[sa.Connection]:
        self._lent.connection = _Lent(lent)
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:  # `SQLiteConnections` knows what SQLite's errors mean
            raise error.orig or error from None


@cache
def _sqlite_format() -> DatabaseFormat:
    tables = METADATA.sorted_tables
    made: list[sa.ClauseElement] = [CreateTable(table) for table in tables]
    made += [CreateIndex(index) for table in tables for index in table.indexes]
    made.append(sa.insert(progress).values(_BEGINNING))
    dialect, literal = sqlite.dialect(), {"literal_binds": True}
    schema = ";".join(
        str(statement.compile(dialect=dialect, compile_kwargs=literal)) for statement in made
    )
    return DatabaseFormat("state", _KIND, FORMAT, schema)


class PostgreSQL:
    """A database that holds the collections of any number of servers."""

    def __init__(self, url: str) -> None:
        """Connect.

        Args:
            url: `postgresql://USER@HOST/DATABASE`.

        Raises:
            SettingsError: it cannot be reached.
        """
        require_extra("postgresql", "PostgreSQL", "psycopg")
        try:
            parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
            self.name = f"postgresql://{parsed.host or ''}/{parsed.database or ''}"
            self.engine = sa.create_engine(
                parsed,
                connect_args=_TIMEOUTS,
                pool_pre_ping=True,
                isolation_level="REPEATABLE READ",
            )
            self.engine.connect().close()
        except (ArgumentError, ValueError) as error:
            problem = f"database: is not postgresql://USER@HOST/DATABASE: {error}"
            raise SettingsError(problem) from None
        except DBAPIError as error:
            raise SettingsError(f"database: {self.name}: {error.orig}") from error

    def has(self, collection: str) -> bool:
        """Return whether there is a state of a collection."""
        with _translated(self.name), self.engine.connect() as connection:
            return sa.inspect(connection).has_table(progress.name, schema_name(collection))

    def collections(self) -> list[str]:
        """Return the names of the collections that have documents, in order."""
        with _translated(self.name), self.engine.connect() as connection:
            return sorted(connection.scalars(_COLLECTIONS))

    def drop(self, collection: str) -> None:
        """Remove a collection, durably and as a whole, if there is any."""
        with _translated(self.name), self.engine.begin() as connection:
            connection.execute(DropSchema(schema_name(collection), cascade=True, if_exists=True))

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


class PostgreSQLState:
    """The tables in a schema; a lock of it lets one write at a time change them."""

    shared = True

    def __init__(self, database: PostgreSQL, collection: str) -> None:
        """Open the schema of a collection; create it if it is missing."""
        schema = schema_name(collection)
        self._name = database.name
        self._engine: sa.Engine = database.engine.execution_options(
            schema_translate_map={None: schema}
        )
        # Sees what was committed while it waited for the lock.
        self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._lock = sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(schema, 1)))
        self._failure: StorageError | None = None
        with self.writing() as connection:
            connection.execute(CreateSchema(schema, if_not_exists=True))
            METADATA.create_all(connection)
            found = connection.scalar(sa.select(progress.c.format))
            if found is None:
                connection.execute(sa.insert(progress).values(_BEGINNING))
        if found not in (None, FORMAT):
            raise StoreError(f"{self._name}: {schema} has format {found}, and not {FORMAT}")

    @property
    def failure(self) -> StorageError | None:
        """The failure that the last transaction met."""
        return self._failure

    @contextmanager
    def reading(self, engine: sa.Engine | None = None) -> Iterator[sa.Connection]:
        """Lend a connection inside a transaction."""
        try:
            with _translated(self._name), (engine or self._engine).begin() as connection:
                yield connection
            self._failure = None
        except StorageError as error:
            self._failure = error
            raise

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Lend a connection inside a transaction, one at a time."""
        with self.reading(self._writer) as connection:
            connection.execute(self._lock)
            yield connection

    def close(self) -> None:
        """Do nothing: the connections are those of the database."""


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        from index.postgresql.connections import database_error  # an optional dependency

        raise database_error(name, error.orig) from error


def open_state(data: Path, database: PostgreSQL | None = None) -> State:
    """Open the state of a data directory, which is created if it is missing.

    Where a full disk has no room for a new file, there is none and every write is refused.
    """
    if database is None:
        return SQLiteState(data / STATE_FILE)
    return PostgreSQLState(database, collection_name(data))


@contextmanager
def existing_state(data: Path, *, read_only: bool = True) -> Iterator[State | None]:
    """Open the state of a data directory while a block runs; None if there is none.

    The setting `database` says where it is.
    """
    url, path = Settings().database, data / STATE_FILE
    state: State | None = None
    with ExitStack() as opened:
        if url is not None:
            database = opened.enter_context(closing(PostgreSQL(url)))
            if database.has(collection_name(data)):
                state = PostgreSQLState(database, collection_name(data))
        elif path.exists():
            state = opened.enter_context(closing(SQLiteState(path, read_only=read_only)))
        yield state

"""Where the tables of a collection are: a file of its data directory, or a schema of PostgreSQL.

Both commit durably before a write returns, and let one write at a time change a collection.
"""

import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable, DropSchema

from index.directory.backup import STATE_FILE
from index.directory.collections import COLLECTIONS_DIRECTORY, DEFAULT_COLLECTION
from index.directory.data_directory import STORE_FILE
from index.errors import StorageError, StorageFullError, StoreError
from index.optional_dependencies import require_extra
from index.sqlite.connections import DatabaseFormat, SQLiteConnections
from service.errors import DatabaseFailedError, SettingsError
from service.settings import Settings
from service.state.tables import FORMAT, METADATA, progress

_BEGINNING = {"format": FORMAT, "space": "", "served_seconds": 0.0}
_TIMEOUTS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}  # seconds, milliseconds
_KIND = 0x4C4D5354  # of a file, and of the lock that a server takes
_DISK_FULL = "53100"

_LOG = logging.getLogger(__name__)


class State(Protocol):
    """The tables of one collection. Safe to use from many threads."""

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
    """A database that holds the state of one data directory, and belongs to it alone."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """Connect; unless `read_only`, other servers are kept out until `close`.

        Args:
            url: `postgresql://USER@HOST/DATABASE`.
            read_only: for a command that may run beside a server.

        Raises:
            SettingsError: it cannot be reached, or another server uses it.
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
            # Its session holds the lock, and ends with the process.
            self._session = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        except (ArgumentError, ValueError) as error:
            raise SettingsError(f"state: is not postgresql://USER@HOST/DATABASE: {error}") from None
        except DBAPIError as error:
            raise SettingsError(f"state: {self.name}: {error.orig}") from error
        if read_only:
            self._session.close()
        elif not self._session.scalar(sa.select(sa.func.pg_try_advisory_lock(_KIND))):
            self.close()
            raise SettingsError(f"state: {self.name}: another server uses this database")

    def has(self, collection: str) -> bool:
        """Return whether there is a state of a collection."""
        with _translated(self.name), self.engine.connect() as connection:
            return sa.inspect(connection).has_schema(schema_name(collection))

    def drop(self, collection: str) -> None:
        """Remove the state of a collection, durably and as a whole, if there is any."""
        with _translated(self.name), self.engine.begin() as connection:
            connection.execute(DropSchema(schema_name(collection), cascade=True, if_exists=True))

    def close(self) -> None:
        """Close every connection."""
        self._session.close()
        self.engine.dispose()


def schema_name(collection: str) -> str:
    """Return the name of the schema of a collection, of at most 63 bytes."""
    digest = hashlib.sha256(collection.encode()).hexdigest()
    return f"longmatch_{collection[:36]}_{digest[:16]}"


class PostgreSQLState:
    """The tables in a schema; a lock of the process lets one write at a time change them."""

    def __init__(self, database: PostgreSQL, collection: str) -> None:
        """Open the schema of a collection; create it if it is missing."""
        schema = schema_name(collection)
        self._name = database.name
        self._engine: sa.Engine = database.engine.execution_options(
            schema_translate_map={None: schema}
        )
        self._lock = threading.RLock()
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
    def reading(self) -> Iterator[sa.Connection]:
        """Lend a connection inside a transaction."""
        try:
            with _translated(self._name), self._engine.begin() as connection:
                yield connection
            self._failure = None
        except StorageError as error:
            self._failure = error
            raise

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Lend a connection inside a transaction, one at a time."""
        with self._lock, self.reading() as connection:
            yield connection

    def close(self) -> None:
        """Do nothing: the connections are those of the database."""


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _DISK_FULL:
            raise StorageFullError(name, "the database has no room") from error
        if isinstance(error, OperationalError | InterfaceError):
            _LOG.error("%s: %s", name, error.orig)
            raise DatabaseFailedError(name, "PostgreSQL cannot be reached") from error
        raise StoreError(f"{name}: {type(error.orig).__name__}") from error


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

    The setting `state` says where it is.
    """
    url, path = Settings().state, data / STATE_FILE
    state: State | None = None
    with ExitStack() as opened:
        if url is not None:
            database = opened.enter_context(closing(PostgreSQL(url, read_only=read_only)))
            if database.has(collection_name(data)):
                state = PostgreSQLState(database, collection_name(data))
        elif path.exists():
            state = opened.enter_context(closing(SQLiteState(path, read_only=read_only)))
        yield state


def collection_name(data: Path) -> str:
    """Return the name of the collection whose data directory this is."""
    folder = data.absolute().parent
    named = folder.name == COLLECTIONS_DIRECTORY and (folder.parent / STORE_FILE).exists()
    return data.absolute().name if named else DEFAULT_COLLECTION

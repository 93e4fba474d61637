"""What a collection keeps besides documents: jobs, answers to keys, feedback, standing queries.

The tables are the same in a file of the data directory and in a schema of PostgreSQL. Both commit
durably before a write returns, and let one write at a time change a collection.

A response is stored under the Idempotency-Key of its request, so that a repetition is replayed. Its
age is measured in seconds of service by a monotonic clock and stored with it: a wall clock that
jumps expires no key, and while the service is down no key ages.
"""

import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.dialects import registry
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from index.directory.backup import STATE_FILE
from index.errors import StorageError, StoreError
from index.sqlite.connections import DatabaseFormat
from index.store.database import Connections
from index.store.schema import open_tables
from service.errors import IdempotencyKeyInUseError, IdempotencyKeyReusedError
from service.settings import Settings

FORMAT = 4
METADATA = sa.MetaData()


class Words(sa.TypeDecorator[str]):
    """Text as UTF-8 bytes: a text of PostgreSQL has no NUL, and an order that depends on it."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Encode a text; a lone surrogate, which no stored text has, equals nothing."""
        return None if value is None else value.encode(errors="surrogatepass")

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> str | None:
        """Decode a text, even a damaged one."""
        return None if value is None else bytes(value).decode(errors="replace")


_filled = partial(sa.Column[Any], nullable=False)
_count = partial(sa.Column[Any], type_=sa.BigInteger, nullable=False, server_default=sa.text("0"))
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers no other type


def _table(name: str, *parts: Any) -> sa.Table:
    """Make a table; where rows are numbered, no number is given twice."""
    return sa.Table(name, METADATA, *parts, sqlite_autoincrement=True)


# One row. `space` is the fingerprint of the vectors whose ids `standing.scanned` is one of.
progress = _table(
    "progress",
    _filled("format", sa.Integer),
    _filled("space", sa.Text),
    _filled("served_seconds", sa.Double),
)

# Jobs run in the order of `number`.
jobs = _table(
    "jobs",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("state", sa.Text),
    _filled("size", sa.BigInteger),
    _filled("digest", sa.LargeBinary),
    _filled("client", Words),
    _filled("accepted", sa.BigInteger),
    *map(_count, ("position", "line", "indexed", "unchanged", "truncated", "failed")),
    sa.Column("detail", Words),
    _filled("created", sa.Text),
    sa.Column("ended", sa.Text),
    _filled("server", sa.Text),  # which has the upload
    sa.Index("jobs_by_state", "state", "number"),
)
line_errors = _table(
    "line_errors",
    sa.Column("job", sa.ForeignKey(jobs.c.number, ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.BigInteger, primary_key=True, autoincrement=False),
    _filled("pointer", Words),
    _filled("detail", Words),
)
responses = _table(
    "responses",
    sa.Column("key", Words, primary_key=True),
    _filled("request", sa.LargeBinary),
    _filled("status", sa.Integer),
    sa.Column("location", Words),
    _filled("body", sa.LargeBinary),
    _filled("served_seconds", sa.Double, index=True),
)

# `size` are the bytes that a query takes.
judged = _table(
    "judged",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("digest", sa.LargeBinary, unique=True),
    sa.Column("document", Words, index=True),
    _filled("title", Words),
    _filled("size", sa.BigInteger, index=True),
    sa.Column("text", sa.LargeBinary),
)
verdicts = _table(
    "verdicts",
    sa.Column("id", Words, primary_key=True),
    _filled("query", sa.ForeignKey(judged.c.number)),
    _filled("answer", Words, index=True),
    _filled("grade", sa.Integer, index=True),
    _filled("created", sa.Text),
    _filled("changed", sa.Text),
    sa.UniqueConstraint("query", "answer"),
)

# The columns that are long come last.
standing = _table(
    "standing",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("interest", sa.JSON),
    _filled("created", sa.Text),
    _filled("scanned", sa.BigInteger),
    sa.Column("detail", Words),
    sa.Column("fingerprint", sa.Text),
    sa.Column("receipt", sa.JSON(none_as_null=True)),
    sa.Column("webhook", sa.JSON(none_as_null=True)),
    _filled("paused", sa.Boolean, server_default=sa.false()),
    _count("revision"),
    _filled("bytes", sa.BigInteger),
    sa.Column("vectors", sa.LargeBinary),  # an .npz
    sa.Column("text", Words),
)
# Clients resume after the last number that they have seen.
events = _table(
    "events",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("query", sa.ForeignKey(standing.c.number, ondelete="CASCADE")),
    _filled("created", sa.Text),
    _filled("document", Words),
    _filled("title", Words),
    _filled("score", sa.Double),
    _filled("scored_as", sa.Text),
    sa.Column("probability", sa.Double),
    sa.Column("false_positive_rate", sa.Double),
    sa.Index("events_by_query", "query", "number"),
)


def keep_newest(
    connection: Connection, order: sa.Column[Any], number: int, *where: sa.ColumnElement[bool]
) -> None:
    """Delete the rows for which `where` holds, but for the last ones in an order."""
    newest = select(order).where(*where).order_by(order.desc())
    first_beyond = connection.scalar(newest.limit(1).offset(number))
    if first_beyond is not None:
        connection.execute(delete(order.table).where(*where, order <= first_beyond))


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
def _dialect(name: str) -> sa.Dialect:
    """Return a dialect, whose modules are imported only where it is used."""
    made: sa.Dialect = registry.load(name)()
    return made


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


def open_state(data: Path, database: str | None = None, *, read_only: bool = False) -> State:
    """Open the state of a data directory; it is created if it is missing, unless `read_only`.

    Where a full disk has no room for a new file, there is none and every write is refused.
    """
    path = data / STATE_FILE
    dialect = _dialect("sqlite.pysqlite" if database is None else "postgresql.psycopg")
    kind = DatabaseFormat("state", _KIND, FORMAT, _script(dialect), progress.name)
    return State(open_tables(path, database, kind, read_only=read_only), dialect)


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
    except StoreError as error:
        if database is None or isinstance(error, StorageError):
            raise
        yield None
        return
    with closing(state):
        yield state


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
    def in_progress(self, key: str) -> Iterator[None]:
        """Reject other requests with this key, while the block runs."""
        with self._lock:
            if key in self._in_progress:
                raise IdempotencyKeyInUseError
            self._in_progress.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._in_progress.discard(key)

    def find(self, key: str, request: bytes) -> StoredResponse | None:
        """Return the response that was given to the request of a digest, if it is stored.

        IdempotencyKeyReusedError if the key was used for another request.
        """
        values = {"key": key, "expired": self._seconds() - RETENTION_SECONDS}
        with self._state.reading() as connection:
            row = connection.execute(_FIND, values).first()
        if row is None:
            return None
        if row.request != request:
            raise IdempotencyKeyReusedError
        return StoredResponse(row.status, zlib.decompress(row.body), row.location)

    def put(self, key: str, request: bytes, response: StoredResponse) -> None:
        """Store the response to a request of a digest, durably, and delete expired ones."""
        now, age = self._seconds(), responses.c.served_seconds
        behind = progress.c.served_seconds < now
        row = asdict(response) | {"key": key, "request": request, "served_seconds": now}
        row["body"] = zlib.compress(response.body)
        with self._state.writing() as connection:
            connection.execute(update(progress).where(behind).values(served_seconds=now))
            connection.execute(delete(responses).where(responses.c.key == key))
            connection.execute(insert(responses).values(row))
            connection.execute(delete(responses).where(age <= now - RETENTION_SECONDS))
            keep_newest(connection, age, MAX_KEYS)

    def _seconds(self) -> float:
        """Return how long this collection has been served, in all."""
        return self._served + monotonic() - self._opened

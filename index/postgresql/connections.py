"""Connections to a schema of PostgreSQL, which take the statements that SQLite takes.

A statement is written once, in the SQL of SQLite that both databases share. Four things differ, and
are translated here: the marks of parameters, lists of ids in JSON, one aggregate, and a key that an
index of PostgreSQL could not hold at its full length.

A writing transaction holds a lock of its schema from its first statement to its commit, which
PostgreSQL lets go after the commit is visible: who sees change n + 1 sees change n, and vector
ids come in the order of the changes, with any number of servers. A reading one sees one state.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache, partial
from typing import Any

import psycopg
from psycopg.types.string import StrDumperUnknown, TextLoader
from sqlalchemy.pool import QueuePool

from index.errors import DatabaseFailedError, StorageError, StorageFullError, StoreError
from index.sqlite.connections import DatabaseFormat

_IDLE = 6  # connections that are kept for a schema
_OPTIONS = '-c search_path="{}" -c lock_timeout=10s -c statement_timeout=300s'
_TIMEOUTS: dict[str, Any] = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
_FULL, _READ_ONLY = "53100", "25006"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ?::text, 0))"
_LOCK_TASK = "SELECT pg_advisory_lock(hashtextextended(current_schema() || ?::text, 0))"
LEASE_SECONDS = 120  # that a server may be silent which does a task alone
# A server that stops in the middle of a write keeps the lock, until another one has waited for it:
# the limits that PostgreSQL has for idle transactions end none after a pipeline of statements.
_END_STOPPED = """
SELECT pg_terminate_backend(pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(current_schema() || ?::text, 0)
AND a.wait_event = 'ClientRead'
AND greatest(a.state_change, a.query_start) < now() - ?::float * interval '1s'"""
_FORMAT = "SELECT obj_description(to_regclass(?::text))"
_COLLECTIONS = """
SELECT split_part(obj_description(c.oid), ' ', 2) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'meta' AND n.nspname LIKE 'longmatch\\_%' ORDER BY 1"""
_ID_LIST = re.compile(r"([\w.]+) IN \(SELECT value FROM json_each\((\?\d*)\)\)")
# PostgreSQL refuses JSON with a NUL only where it is read.
_DATE = r"""
(CASE WHEN position('\u0000' IN metadata) = 0 THEN metadata::json ->> 'date' END) COLLATE "C" """
_log = logging.getLogger(__name__)


@cache
def translated(statement: str) -> str:
    """Return a statement of SQLite as PostgreSQL takes it."""
    statement = _ID_LIST.sub(_id_list, statement)
    statement = statement.replace("group_concat(vector_id)", "string_agg(vector_id::text, ',')")
    statement = statement.replace("metadata ->> '$.date'", _DATE)
    statement = statement.replace("WHERE field = ?", "WHERE md5(field) = md5(?::text)")
    first, *rest = re.split(r"\?(?!\d)", statement)
    marked = first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))
    return re.sub(r"\?(\d)", r"$\1", marked)


def _id_list(found: re.Match[str]) -> str:
    column, mark = found.groups()
    if column == "id":
        return f"id = ANY(ARRAY(SELECT json_array_elements_text({mark}::text::json)))"
    return f"{column} = ANY(translate({mark}::text, '[]', '{{}}')::bigint[])"


def tables_of(schema: str) -> str:
    """Return the statements that make tables as PostgreSQL takes them."""
    for ours, theirs in (
        ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
        ("INTEGER", "BIGINT"),
        ("BLOB", "BYTEA"),
        ("TEXT", 'TEXT COLLATE "C"'),
        ("PRIMARY KEY (field, kind, value, vector_id)", "CHECK (true)"),
        (") WITHOUT ROWID", ")"),
    ):
        schema = schema.replace(ours, theirs)
    if "TABLE metadata_values" not in schema:
        return schema
    return f"""{schema};
CREATE INDEX documents_by_title ON documents (title_hash);
CREATE INDEX documents_by_title_head ON documents (title_head);
CREATE UNIQUE INDEX values_by_field ON metadata_values (md5(field), kind, value, vector_id);
CREATE INDEX values_by_document ON metadata_values (vector_id)"""


class _Text(StrDumperUnknown):
    """A text of PostgreSQL has no NUL: it is stored as U+0001, a zero; U+0001 itself and a one."""

    def dump(self, obj: str) -> bytes:
        return obj.replace("\x01", "\x011").replace("\x00", "\x010").encode()


class _StoredText(TextLoader):
    def load(self, data: Any) -> str:
        text = bytes(data).decode("utf-8", "replace")
        return text.replace("\x010", "\x00").replace("\x011", "\x01") if "\x01" in text else text


class _Connection:
    """A connection of psycopg with the calls of one of SQLite."""

    def __init__(self, raw: Any, lent: Any = None) -> None:
        self.raw = raw
        self.lent = lent  # by the pool

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = psycopg.RawCursor(self.raw)
        return cursor.execute(translated(statement).encode(), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Any:
        cursor = psycopg.RawCursor(self.raw)
        cursor.executemany(translated(statement).encode(), list(rows))
        return cursor


def _connect(url: str, schema: str) -> Any:
    options = {**_TIMEOUTS, "options": _OPTIONS.format(schema), "autocommit": True}
    raw = psycopg.connect(url, **options)
    raw.adapters.register_dumper(str, _Text)
    raw.adapters.register_loader("text", _StoredText)
    return raw


@cache
def _pool_of(url: str, schema: str) -> QueuePool:
    """Return the connections to a schema, shared by all that use the schema."""
    connect = partial(_connect, url, schema)
    return QueuePool(connect, pool_size=_IDLE, max_overflow=-1, reset_on_return=None)


class PostgreSQLConnections:
    """Connections to the schema of a collection, which no two threads share.

    Every error is raised as a `StoreError` that names the database. One that has ended, as after a
    restart of the server, is replaced.
    """

    def __init__(self, url: str, collection: str, kind: DatabaseFormat, *, read_only: bool) -> None:
        """Open the tables of a format in the schema of a collection, which others may have, too.

        They are made if they are missing, unless `read_only`, and so is the schema.

        Raises:
            StoreError: it cannot be reached, there are no tables, or they are of another format.
        """
        schema = schema_name(collection)
        self.name = f"{_name_of(url)} {schema}"
        self.shared = True
        self._url = url
        self._mark = kind.mark
        self._schema = schema
        self._read_only = read_only
        self.failure: StorageError | None = None
        self._closed = False
        self._pool = _pool_of(url, schema)
        try:
            if not read_only:
                self._create_if_missing(kind, collection)
            ((found,),) = self.read_rows(_FORMAT, kind.mark)
            if found is None:
                raise StoreError(f"{self.name}: there is nothing here")
            if (version := found.partition(" ")[0]) != str(kind.version):
                raise StoreError(
                    f"{self.name}: has format {version}; "
                    f"this version of Longmatch reads {kind.version}"
                )
        except BaseException:
            self.close()
            raise

    def _create_if_missing(self, kind: DatabaseFormat, collection: str) -> None:
        with self._transaction("BEGIN") as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('longmatch'))")
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            ((found,),) = connection.execute(_FORMAT, (kind.mark,))
            if found is None:
                connection.raw.execute(tables_of(kind.schema).encode())
                comment = f"COMMENT ON TABLE {kind.mark} IS '{kind.version} {collection}'"
                connection.raw.execute(comment.encode())

    def reading(self) -> AbstractContextManager[Any]:
        """Lend a connection inside a read transaction: all statements see one state."""
        return self._transaction(_READING)

    def read_rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, which needs no transaction to see one state."""
        with self._named():
            connection, found = self._begun(statement, values)
            try:
                rows: list[tuple[Any, ...]] = found.fetchall()
            finally:
                self._give_back(connection)
            return rows

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Lend a connection inside the only write transaction: committed and durable, or undone."""
        if self._read_only:
            raise StoreError(f"{self.name}: the store was opened for reading only")
        with self._transaction("BEGIN") as connection:
            try:
                connection.execute(_LOCK, (self._mark,))
            except psycopg.errors.LockNotAvailable:
                connection.execute("ROLLBACK")
                connection.execute(_END_STOPPED, (self._mark, 9))
                connection.execute("BEGIN")
                connection.execute(_LOCK, (self._mark,))
            yield connection

    @contextmanager
    def alone(self, task: str) -> Iterator[Callable[[], None]]:
        """Wait until no other server does a task, and let none begin it until the end.

        PostgreSQL lets the lock go with the connection: what waits takes over from what was killed,
        and from what has not called for `LEASE_SECONDS` what this lends, as it is paused. That
        raises StoreError then.
        """
        with self._named(), closing(_connect(self._url, self._schema)) as raw:
            connection = _Connection(raw)

            def going_on() -> None:
                try:
                    connection.execute("SELECT 1")
                except psycopg.OperationalError as error:
                    raise StoreError(f"{self.name}: the {task} is another server's now") from error

            while True:
                with suppress(psycopg.errors.LockNotAvailable):
                    connection.execute(_LOCK_TASK, (task,))
                    break
                connection.execute(_END_STOPPED, (task, LEASE_SECONDS))
            yield going_on

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
        self._closed = True
        self._pool.dispose()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[_Connection]:
        with self._named():
            connection, _ = self._begun(begin, ())
            try:
                yield connection
                connection.raw.execute("COMMIT")
            except BaseException:
                with suppress(psycopg.Error):
                    connection.raw.execute("ROLLBACK")
                self._give_back(connection)
                raise
            self._give_back(connection)

    def _begun(self, statement: str, values: Sequence[Any]) -> tuple[_Connection, Any]:
        """Execute a first statement, by a new connection where the pooled ones have ended."""
        for is_last in (False, True):
            if self._closed:
                raise StoreError(f"{self.name}: the store is closed")
            lent = self._pool.connect()
            connection = _Connection(lent.dbapi_connection, lent)
            try:
                return connection, connection.execute(statement, values)
            except psycopg.OperationalError:
                connection.lent.invalidate()
                self._pool.dispose()
                if is_last:
                    raise
            except BaseException:
                self._give_back(connection)
                raise
        raise AssertionError

    def _give_back(self, connection: _Connection) -> None:
        idle = connection.raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if self._closed or not idle:
            connection.lent.invalidate()
        connection.lent.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            found = database_error(self.name, error)
            self.failure = found if isinstance(found, StorageError) else self.failure
            raise found from error
        self.failure = None


def _name_of(url: str) -> str:
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreError(f"is not postgresql://USER@HOST/DATABASE: {error}") from None
    return f"postgresql://{parts.get('host') or ''}/{parts.get('dbname') or ''}"


def collections_in(url: str) -> list[str]:
    """Return the names of the collections in a database, in order."""
    return [row[0] for row in _run(url, _COLLECTIONS).fetchall()]


def drop_collection(url: str, collection: str) -> None:
    """Remove a collection from a database, durably and as a whole, if there is one."""
    _run(url, f'DROP SCHEMA IF EXISTS "{schema_name(collection)}" CASCADE')


def _run(url: str, statement: str) -> Any:
    try:
        with psycopg.connect(url, autocommit=True, **_TIMEOUTS) as connection:
            return connection.execute(statement.encode())
    except psycopg.Error as error:
        raise database_error(_name_of(url), error) from error


def schema_name(collection: str) -> str:
    """Return the name of the schema of a collection, of at most 63 bytes."""
    digest = hashlib.sha256(collection.encode()).hexdigest()
    return f"longmatch_{collection[:36]}_{digest[:16]}"


def database_error(name: str, error: BaseException | None) -> StoreError:
    """Return what an error of PostgreSQL means; the text of a document is in none."""
    state = getattr(error, "sqlstate", None)
    if state == _FULL:
        return StorageFullError(name, "the database has no room")
    if state == _READ_ONLY:
        return DatabaseFailedError(name, "PostgreSQL takes no writes")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        _log.error("%s: %s", name, error)
        return DatabaseFailedError(name, "PostgreSQL cannot be reached, or does not answer in time")
    return StoreError(f"{name}: {type(error).__name__}")

"""SQLite files: one connection that writes, a pool that reads, and what their errors mean.

Connections of a file share an index of its write-ahead log, a file of 32 KiB, which a full disk may
have no room for. Then the file is read as it is, and the connection that writes is opened, and a
missing file created, by the first write for which there is room.
"""

import errno
import json
import logging
import os
import re
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import Any

from encoder.atomic_files import replace_durably
from index.errors import StorageError, StorageFullError, StoreError

BUSY_TIMEOUT_SECONDS = 30.0
# A stored text may be no UTF-8 any more. Its checksum tells; the error that Python's module would
# raise names no row, and quotes the text.
_read_any_text = methodcaller("decode", "utf-8", "replace")
# What SQLite raises; the second where its message quotes a schema that is no longer UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_PRIVATE = stat.S_IRUSR | stat.S_IWUSR
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseFormat:
    """What distinguishes a database of this format from others, and how an empty one is made.

    Attributes:
        contents: what it holds, for messages: "jobs".
        application_id: of SQLite's header.
        version: of the format.
        schema: statements that make the tables and their first rows.
        mark: one of the tables, which says of which format they are where they are in PostgreSQL.
        durable: a commit is on the disk at return; else a power failure may undo the last ones.
    """

    contents: str
    application_id: int
    version: int
    schema: str
    mark: str = ""
    durable: bool = True

    @property
    def script(self) -> str:
        """The statements that make an empty database of this format."""
        return (
            f"{self.schema};PRAGMA application_id = {self.application_id};"
            f"PRAGMA user_version = {self.version};"
        )

    def beginning_with(self, table: str, *values: str | int) -> "DatabaseFormat":
        """Return the format with a first row of a table in an empty database."""
        literals = ", ".join("'" + str(value).replace("'", "''") + "'" for value in values)
        first = f"INSERT INTO {table} VALUES ({literals});"  # noqa: S608  (takes no parameters)
        return replace(self, schema=f"{self.schema};{first}")

    def create_if_missing(self, path: Path) -> None:
        """Create an empty database if there is no file, whole or not at all.

        Raises:
            StoreError: it cannot be created.
        """
        unfinished = path.with_name(f"{path.name}.new")
        try:
            if path.exists():
                return
            create_private(unfinished)
            with closing(sqlite3.connect(unfinished)) as connection:
                # Before all else. A commit gives the pages that it frees back to the file system.
                connection.execute("PRAGMA auto_vacuum = FULL")
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode != "wal":  # some network file systems
                    raise StoreError(f"{path}: no write-ahead log is possible here, only {mode}")
                connection.executescript(self.script)
            replace_durably(unfinished, path)
        except (OSError, sqlite3.Error) as error:
            raise (
                storage_error(path, error) or StoreError(f"{path}: cannot be created: {error}")
            ) from error

    def check(self, connection: sqlite3.Connection, path: Path) -> None:
        """Check that a database is of this format.

        Raises:
            StoreError: it is not.
        """
        if connection.execute("PRAGMA application_id").fetchone() != (self.application_id,):
            raise StoreError(f"{path}: is a database, but not one of Longmatch's {self.contents}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != self.version:
            raise StoreError(
                f"{path}: has format {version}; "
                f"this version of Longmatch reads format {self.version}"
            )


def create_private(path: Path) -> None:
    """Create an empty file in place of any other, which its owner alone may read and write.

    SQLite gives the mode of a database to the files that it makes for it.

    Raises:
        OSError: it cannot be created.
    """
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))


class _Unshared(sqlite3.Connection):
    """A connection that does not see what others write; it is closed after one use."""


class SQLiteConnections:
    """One write connection behind a lock, and read connections that no two threads share.

    Every SQLite error is raised as a `StoreError` that names the file. Read connections are
    borrowed and returned, not kept for each thread: threads of a pool come and go, and the
    connection of a dead thread would stay open.
    """

    def __init__(self, path: Path, *, read_only: bool, kind: DatabaseFormat) -> None:
        """Open a file.

        Args:
            path: of the file.
            read_only: refuse every write.
            kind: format of the file, which is created if it is missing, unless `read_only`.

        Raises:
            StoreError: the file is missing, cannot be opened or is not such a database.
        """
        self.name = str(path)
        self.shared = False
        self._path = path
        self._read_only = read_only
        self._kind = kind
        self._write_lock = threading.RLock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        self._failure: StorageError | None = None
        try:
            if not read_only:
                self._open_writer()
        except StorageFullError as error:
            self._failure = error
            _log.error("%s; what is stored can be read", error)
        try:
            with self.reading() as connection:
                kind.check(connection, path)
        except BaseException:
            self.close()
            raise

    @property
    def failure(self) -> StorageError | None:
        """The failure of the disk that the last write met; None while it is full no more."""
        failure = self._failure
        gone = isinstance(failure, StorageFullError) and not is_full(self._path)
        return None if gone else failure

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""
        with self._lent() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    def read_rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, which needs no transaction to see one state."""
        with self._lent() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the write connection inside a transaction: committed and durable, or undone."""
        with translated_errors(self._path), self._write_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._read_only:
                raise StoreError(f"{self._path}: the store was opened for reading only")
            try:
                writer = self._writer or self._open_writer()
                try:
                    writer.execute("BEGIN IMMEDIATE")
                    yield writer
                    writer.execute("COMMIT")
                    self._failure = None
                finally:
                    if writer.in_transaction:
                        writer.execute("ROLLBACK")
            except (sqlite3.Error, StorageError) as error:
                self._failure = storage_error(self._path, error)
                raise

    def alone(self, task: str) -> AbstractContextManager[Callable[[], None]]:
        """Return at once: no other process writes to the file, nor to what follows it."""
        return nullcontext(lambda: None)

    def vacuum(self) -> None:
        """Write the file again from the rows in it, all or nothing."""
        with translated_errors(self._path), self._write_lock:
            (self._writer or self._open_writer()).execute("VACUUM")

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
        with self._write_lock:
            self._closed = True
            self._close_idle()
            if self._writer is not None:
                self._writer.close()

    def _open_writer(self) -> sqlite3.Connection:
        """Open the connection that writes, and create a missing file.

        Raises:
            StoreError: the file cannot be created or opened; `StorageFullError` on a full disk.
        """
        self._kind.create_if_missing(self._path)
        with suppress(OSError):  # of another owner; what cannot be opened is reported below
            if self._path.stat().st_mode & _OF_OTHERS:  # restored, or copied by hand
                self._path.chmod(_PRIVATE)
        with translated_errors(self._path):
            connection = _open(self._path, "rw")
            try:
                synchronous = "FULL" if self._kind.durable else "NORMAL"
                connection.execute(f"PRAGMA synchronous = {synchronous}")
                connection.execute("PRAGMA foreign_keys = ON")
            except DATABASE_ERRORS:
                connection.close()
                raise
        self._writer = connection
        return connection

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        with translated_errors(self._path):
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open_reader()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if isinstance(connection, _Unshared):
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _open_reader(self) -> sqlite3.Connection:
        if self._writer is not None:
            return _open(self._path, "ro")  # never one that does not see what is written
        if self._failure is not None and not self._path.exists():
            return _open_empty(self._kind)
        return open_reader(self._path)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn any SQLite error into a `StoreError` that names the file; note a failing disk."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise (storage_error(path, error) or StoreError(f"{path}: {error}")) from error


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a file for reading, which another process may be writing to.

    Raises:
        sqlite3.Error: it cannot be opened, or is no database.
    """
    try:
        return _open(path, "ro")
    except sqlite3.Error as error:
        log = path.with_name(f"{path.name}-wal")
        unwritten = not log.exists() or not log.stat().st_size
        full = isinstance(storage_error(path, error), StorageFullError)
        if not unwritten or not (full or not os.access(path.parent, os.W_OK)):
            raise
        # No place for the index of the log, which nothing is in: no process has the file open.
        return _open(path, "ro&immutable=1", _Unshared)


def _open(
    path: Path, mode: str, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,  # transactions are explicit: BEGIN, COMMIT, ROLLBACK
        check_same_thread=False,
        factory=factory,
    )
    connection.text_factory = _read_any_text
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # connect() alone reads nothing
    except DATABASE_ERRORS:
        connection.close()
        raise
    return connection


def _open_empty(kind: DatabaseFormat) -> sqlite3.Connection:
    """Open an empty database in memory, for want of a file."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=_Unshared
    )
    connection.executescript(kind.script)
    return connection


# No stored id contains these, and SQLite would cut a JSON string at a NUL.
_NEVER_IN_AN_ID = re.compile("[\x00\ud800-\udfff]")


def document_id_list(document_ids: Iterable[str]) -> str:
    """Return document ids as the JSON array that statements take."""
    return json.dumps([name for name in document_ids if not _NEVER_IN_AN_ID.search(name)])


def vector_id_list(vector_ids: Iterable[int]) -> str:
    """Return vector ids as the JSON array that statements take."""
    return json.dumps([int(vector_id) for vector_id in vector_ids])


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# Failures of the disk, as distinct from damage: what cannot be read or written now may be sound. A
# full disk, a failing one, and a limit of the system look like damage to a caller that only sees
# that a file cannot be read. To restore a backup or to delete files is wrong then.

LEAST_FREE = 2**20  # bytes; with less, SQLite can open no file that it would have to grow

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILED = frozenset(
    {
        *(errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM),
        *(errno.ENOMEM, errno.ENXIO, errno.ENODEV, errno.ESTALE),
    }
)
_PRIMARY = 0xFF  # of SQLite's extended result codes
_FAILED_CODES = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)


def storage_error(path: Path, error: BaseException) -> StorageError | None:
    """Return the failure of the disk that an error, or a cause of it, reports; None if none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StorageError):
            return cause
        kind, reason = None, str(cause)
        if isinstance(cause, OSError) and cause.errno in (_FULL | _FAILED):
            kind = StorageFullError if cause.errno in _FULL else StorageError
            reason = os.strerror(cause.errno or 0)
        elif isinstance(cause, sqlite3.Error):
            kind = _failure_of(path, getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_OK))
        if kind is not None:
            return kind(path, reason)
        cause = cause.__cause__
    return None


def _failure_of(path: Path, code: int) -> type[StorageError] | None:
    cut_off = code == sqlite3.SQLITE_IOERR_SHORT_READ
    missing = code == sqlite3.SQLITE_CANTOPEN and not path.is_file()
    if code & _PRIMARY == sqlite3.SQLITE_FULL:
        return StorageFullError
    if cut_off or missing or code & _PRIMARY not in _FAILED_CODES:
        return None
    # SQLite says of some writes only that they failed.
    return StorageFullError if is_full(path) else StorageError


def is_full(path: Path) -> bool:
    """Return whether the file system of a file has no room for SQLite to work."""
    try:
        return shutil.disk_usage(path.parent).free < LEAST_FREE
    except OSError:
        return False

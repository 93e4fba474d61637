"""Connections to an SQLite file (one that writes, a pool that reads), and lists of ids.

Connections share an index of the write-ahead log, a file of 32 KiB. Where a full disk has no room
for it, one connection alone keeps it in memory: what is stored can be read, by one thread at a
time, and written again as soon as there is room.
"""

import json
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import Any

from index.errors import StorageError, StorageFullError, StoreError
from index.sqlite.failures import is_full, storage_error

BUSY_TIMEOUT_SECONDS = 30.0
# A stored text may be no UTF-8 any more. Its checksum tells; the error that Python's module would
# raise names no row, and quotes the text.
read_any_text = methodcaller("decode", "utf-8", "replace")
_PAGES_A_CHECKPOINT = 1_000  # SQLite's own default
# What SQLite raises; the second where its message quotes a schema that is no longer UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

_log = logging.getLogger(__name__)


class SQLiteConnections:
    """One write connection behind a lock, and read connections that no two threads share.

    Every SQLite error is raised as a `StoreError` that names the file. Read connections are
    borrowed and returned, not kept for each thread: threads of a pool come and go, and the
    connection of a dead thread would stay open.
    """

    _writer: sqlite3.Connection | None

    def __init__(self, path: Path, *, read_only: bool, checkpoints: bool = True) -> None:
        """Open an existing file.

        Without `checkpoints` it does not change before `allow_checkpoints`: all changes are in the
        write-ahead log.

        Raises:
            StoreError: the file is missing, cannot be opened or is not an SQLite database.
        """
        self._start(path)
        with translated_errors(path):
            if read_only:
                self._idle.append(open_reader(path))
            else:
                writer = self._open_to_write(path)
                self._writer = writer
                if not checkpoints:
                    writer.execute("PRAGMA wal_autocheckpoint = 0")

    def allow_checkpoints(self) -> None:
        """Let SQLite move changes from the write-ahead log into the file from now on."""
        with translated_errors(self._path), self._write_lock:
            if self._writer is not None and not self._closed:
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_A_CHECKPOINT}")

    def _start(self, path: Path) -> None:
        self._path = path
        self._write_lock = threading.RLock()
        self._pool_lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._writer = None
        self._watching: sqlite3.Connection | None = None  # of `data_version`
        self._alone = False  # the writer also reads
        self._failure: StorageError | None = None
        self._lost: StorageError | None = None  # why there is no file

    def _open_to_write(self, path: Path) -> sqlite3.Connection:
        try:
            return _open_writer(path)
        except sqlite3.Error as error:
            self._failure = storage_error(path, error)
            if not isinstance(self._failure, StorageFullError):
                raise
            writer, self._alone = _open_writer(path, alone=True), True
            _log.error("%s; what is stored can be read", self._failure)
            return writer

    @property
    def lost(self) -> StorageError | None:
        """Why there is no file, and every write is refused; None if there is one."""
        return self._lost

    @property
    def failure(self) -> StorageError | None:
        """The failure of the disk that the last write met; None while it is full no more."""
        failure = self._failure
        if self._lost is not None:
            return self._lost
        gone = isinstance(failure, StorageFullError) and not is_full(self._path)
        return None if gone else failure

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""
        if self._alone:
            with self._reading_alone() as connection:
                yield connection
            return
        with translated_errors(self._path):
            connection = self._borrow()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    def read_rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, which needs no transaction to see one state."""
        if self._alone:
            with self._reading_alone() as connection:
                return connection.execute(statement, values).fetchall()
        with translated_errors(self._path):
            connection = self._borrow()
            try:
                rows = connection.execute(statement, values).fetchall()
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)
            return rows

    def data_version(self) -> int:
        """Return a number that is another one after another process has written.

        Raises:
            StoreError: the file cannot be read.
        """
        with translated_errors(self._path), self._pool_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._watching is None:  # SQLite compares with what the same connection saw last
                self._watching = open_reader(self._path)
            return int(self._watching.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the write connection inside a transaction: committed and durable, or undone."""
        with translated_errors(self._path), self._write_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._lost is not None:
                raise self._lost
            if self._writer is None:
                raise StoreError(f"{self._path}: the store was opened for reading only")
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
                self._failure = None
            except sqlite3.Error as error:
                self._failure = storage_error(self._path, error)
                raise
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextmanager
    def _reading_alone(self) -> Iterator[sqlite3.Connection]:
        with translated_errors(self._path), self._write_lock:
            if self._closed or self._writer is None:
                raise StoreError(f"{self._path}: the store is closed")
            writes = self._writer.in_transaction  # this thread does
            if not writes:
                self._writer.execute("BEGIN")
            try:
                yield self._writer
            finally:
                if not writes:
                    self._writer.rollback()  # unless an error did

    @classmethod
    def in_memory(cls, path: Path, schema: str, failure: StorageError) -> "SQLiteConnections":
        """Return connections to an empty database that refuses writes, for want of the file."""
        connections = cls.__new__(cls)
        connections._start(path)
        connections._writer = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        connections._writer.executescript(schema)
        connections._alone, connections._failure, connections._lost = True, failure, failure
        return connections

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
        with self._write_lock, self._pool_lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            for one in (self._writer, self._watching):
                if one is not None:
                    one.close()

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._idle:
                return self._idle.pop()
        if self._writer is None:
            return open_reader(self._path)
        return _open(self._path, "ro")  # never one that does not see what is written

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._pool_lock:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)


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
        return _open(path, "ro&immutable=1")


def _open(path: Path, mode: str, *pragmas: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,  # transactions are explicit: BEGIN, COMMIT, ROLLBACK
        check_same_thread=False,
    )
    connection.text_factory = read_any_text
    try:
        for pragma in pragmas:
            connection.execute(pragma)
        connection.execute("PRAGMA schema_version").fetchone()  # connect() alone reads nothing
    except DATABASE_ERRORS:
        connection.close()
        raise
    return connection


def _open_writer(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    connection = _open(path, "rw", *(("PRAGMA locking_mode = EXCLUSIVE",) if alone else ()))
    try:
        connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk at return
        connection.execute("PRAGMA foreign_keys = ON")
    except DATABASE_ERRORS:
        connection.close()
        raise
    return connection


# No stored id contains these, and SQLite would cut a JSON string at a NUL.
_NEVER_IN_AN_ID = re.compile("[\x00\ud800-\udfff]")


def document_id_list(document_ids: Iterable[str]) -> str:
    """Return document ids as the JSON array that statements take."""
    return json.dumps([one for one in document_ids if not _NEVER_IN_AN_ID.search(one)])


def vector_id_list(vector_ids: Iterable[int]) -> str:
    """Return vector ids as the JSON array that statements take."""
    return json.dumps([int(vector_id) for vector_id in vector_ids])


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

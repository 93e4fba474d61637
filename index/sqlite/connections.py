"""Connections to an SQLite file (one that writes, a pool that reads), and lists of ids."""

import json
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path

from index.errors import StoreError

BUSY_TIMEOUT_SECONDS = 30.0
# A stored text may be no UTF-8 any more. Its checksum tells; the error that Python's module would
# raise names no row, and quotes the text.
read_any_text = methodcaller("decode", "utf-8", "replace")
_PAGES_A_CHECKPOINT = 1_000  # SQLite's own default
# What SQLite raises; the second where its message quotes a schema that is no longer UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class SQLiteConnections:
    """One write connection behind a lock, and read connections that no two threads share.

    Every SQLite error is raised as a `StoreError` that names the file. Read connections are
    borrowed and returned, not kept for each thread: threads of a pool come and go, and the
    connection of a dead thread would stay open.
    """

    def __init__(self, path: Path, *, read_only: bool, checkpoints: bool = True) -> None:
        """Open an existing file.

        Without `checkpoints` it does not change before `allow_checkpoints`: all changes are in the
        write-ahead log.

        Raises:
            StoreError: the file is missing, cannot be opened or is not an SQLite database.
        """
        self._path = path
        self._write_lock = threading.Lock()
        self._pool_lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        with translated_errors(path):
            if read_only:
                self._idle.append(_open(path, "ro"))
            else:
                self._writer = _open_writer(path)
                if not checkpoints:
                    self._writer.execute("PRAGMA wal_autocheckpoint = 0")

    def allow_checkpoints(self) -> None:
        """Let SQLite move changes from the write-ahead log into the file from now on."""
        with translated_errors(self._path), self._write_lock:
            if self._writer is not None and not self._closed:
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_A_CHECKPOINT}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""
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

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the write connection inside a transaction: committed and durable, or undone."""
        with translated_errors(self._path), self._write_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._writer is None:
                raise StoreError(f"{self._path}: the store was opened for reading only")
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
        with self._write_lock, self._pool_lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            if self._writer is not None:
                self._writer.close()

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._idle:
                return self._idle.pop()
        return _open(self._path, "ro")

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._pool_lock:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn any SQLite error into a `StoreError` that names the file."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise StoreError(f"{path}: {error}") from error


def _open(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,  # transactions are explicit: BEGIN, COMMIT, ROLLBACK
        check_same_thread=False,
    )
    connection.text_factory = read_any_text
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # connect() alone reads nothing
    except DATABASE_ERRORS:
        connection.close()
        raise
    return connection


def _open_writer(path: Path) -> sqlite3.Connection:
    connection = _open(path, "rw")
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

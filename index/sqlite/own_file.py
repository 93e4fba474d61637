"""SQLite files of one purpose each: created whole, and recognised by their application id."""

import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from encoder.atomic_files import replace_durably
from index.errors import StorageError, StoreError
from index.sqlite.connections import SQLiteConnections
from index.sqlite.failures import storage_error

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file of one purpose holds.

    Attributes:
        what: its rows, for messages: "jobs".
        application_id: which no other kind has.
        version: of the tables.
        tables: the statements that create and fill them.
        without: what is not done while a full disk has no room for the file.
    """

    what: str
    application_id: int
    version: int
    tables: str
    without: str

    @property
    def schema(self) -> str:
        """The statements that make a new file of this kind."""
        return (
            f"{self.tables}\nPRAGMA application_id = {self.application_id};\n"
            f"PRAGMA user_version = {self.version};\n"
        )


def open_own_file(path: Path, kind: FileKind, *, read_only: bool = False) -> SQLiteConnections:
    """Open a file; create it if there is none, unless `read_only`.

    Where a full disk has no room for a new file, the tables are empty and refuse writes.

    Raises:
        StoreError: the file cannot be created, or is none of this kind.
    """
    try:
        if not read_only:
            _create_if_missing(path, kind)
    except StorageError as failure:
        _log.error("%s: %s until the next start", failure, kind.without)
        return SQLiteConnections.in_memory(path, kind.schema, failure)
    connections = SQLiteConnections(path, read_only=read_only)
    try:
        _check_kind(connections, path, kind)
    except StoreError:
        connections.close()
        raise
    return connections


def _create_if_missing(path: Path, kind: FileKind) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    try:
        if path.exists():
            return
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(kind.schema)
            connection.commit()
        replace_durably(unfinished, path)
    except (OSError, sqlite3.Error) as error:
        raise (
            storage_error(path, error) or StoreError(f"{path}: cannot be created: {error}")
        ) from error


def _check_kind(connections: SQLiteConnections, path: Path, kind: FileKind) -> None:
    with connections.reading() as connection:
        if connection.execute("PRAGMA application_id").fetchone() != (kind.application_id,):
            raise StoreError(f"{path}: is a database, but not one of Longmatch's {kind.what}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != kind.version:
            raise StoreError(
                f"{path}: the {kind.what} have format {version}; "
                f"this version of Longmatch reads format {kind.version}"
            )

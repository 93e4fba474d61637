"""Opening a database of one format; one that does not exist is created, whole or not at all."""

import logging
import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from encoder.atomic_files import replace_durably
from index.errors import StorageError, StoreError
from index.sqlite.connections import SQLiteConnections
from index.sqlite.failures import storage_error

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
        private: readable by the owner of the file alone: secrets are in it.
    """

    contents: str
    application_id: int
    version: int
    schema: str
    private: bool = False

    @property
    def script(self) -> str:
        """The statements that make an empty database of this format."""
        return (
            f"{self.schema};PRAGMA application_id = {self.application_id};"
            f"PRAGMA user_version = {self.version};"
        )


def open_database(path: Path, kind: DatabaseFormat, *, read_only: bool) -> SQLiteConnections:
    """Open a database; create it if there is no file.

    Where a full disk has no room for a new file, it is empty and refuses writes.

    Raises:
        StoreError: the file cannot be created or is not a database of this format.
    """
    try:
        if not read_only:
            _create_if_missing(path, kind)
    except StorageError as failure:
        _log.error("%s: no %s are accepted until the next start", failure, kind.contents)
        return SQLiteConnections.in_memory(path, kind.script, failure)
    connections = SQLiteConnections(path, read_only=read_only)
    try:
        _check_format(connections, path, kind)
    except StoreError:
        connections.close()
        raise
    return connections


def _create_if_missing(path: Path, kind: DatabaseFormat) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    try:
        if path.exists():
            if kind.private and path.stat().st_mode & _OF_OTHERS:  # restored, or copied by hand
                path.chmod(_PRIVATE)
            return
        unfinished.unlink(missing_ok=True)
        if kind.private:
            os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(kind.script)
            connection.commit()
        replace_durably(unfinished, path)
    except (OSError, sqlite3.Error) as error:
        raise (
            storage_error(path, error) or StoreError(f"{path}: cannot be created: {error}")
        ) from error


def _check_format(connections: SQLiteConnections, path: Path, kind: DatabaseFormat) -> None:
    with connections.reading() as connection:
        if connection.execute("PRAGMA application_id").fetchone() != (kind.application_id,):
            raise StoreError(f"{path}: is a database, but not one of Longmatch's {kind.contents}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != kind.version:
            raise StoreError(
                f"{path}: the {kind.contents} have format {version}; "
                f"this version of Longmatch reads format {kind.version}"
            )

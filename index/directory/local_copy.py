"""The copy of a PostgreSQL in a data directory, for commands: brought up, compared, removed."""

import time
from contextlib import closing
from pathlib import Path

from index.directory.data_directory import (
    FITTED_FILES,
    STORE_FILE,
    locked,
    open_data_directory,
    remove_copy,
)
from index.errors import DatabaseUnavailableError, DataDirectoryInUseError, StoreError
from index.postgres.address import Database
from index.postgres.connections import PostgreSQLConnections
from index.postgres.history import peek_revision
from index.replica.copy_mark import check_may_copy
from index.replica.opening import fetch_attachments, position_of

_SECONDS = 30.0  # in which a server that has the copy open must have followed
_WAIT_SECONDS = 0.1


def bring_up_copy(path: Path, database: Database) -> None:
    """Bring the copy of a database to its present state, or wait until a server has done so.

    Raises:
        StoreError: the database cannot be used or has no documents, or the copy cannot be written.
    """
    check_may_copy(path, path / STORE_FILE, database.address)
    space = fetch_attachments(path, database, FITTED_FILES)
    if space is None:
        raise StoreError(f"{database.address}: there is no document store here")
    try:
        open_data_directory(
            path, fingerprint=space.fingerprint, dimension=space.dimension, database=database
        ).close()
    except DataDirectoryInUseError:
        _wait(path, database)


def _wait(path: Path, database: Database) -> None:
    """Wait until the process that has a copy open has followed the database."""
    with closing(PostgreSQLConnections(database.address, read_only=True)) as connections:
        wanted = peek_revision(connections).number
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            revision = position_of(path / STORE_FILE).revision
        except StoreError:  # it is being made
            revision = None
        if revision is not None and revision.number >= wanted:
            return
        if time.monotonic() > deadline:
            raise DatabaseUnavailableError(
                database.address,
                f"the process that has {path} open does not follow: it is {wanted} writes long",
            )
        time.sleep(_WAIT_SECONDS)


def forget_copy(path: Path) -> None:
    """Remove the copy of a database from a data directory.

    Raises:
        DataDirectoryInUseError: a server has it open.
        StoreError: it cannot be removed.
    """
    with locked(path):
        remove_copy(path)

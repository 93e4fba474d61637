"""Opens the database that a data directory is a copy of, and checks that it is that one."""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from encoder.adapter import VectorSpace
from encoder.atomic_files import write_atomically
from index.errors import StorageError, StoreError
from index.postgres.address import Database
from index.postgres.connections import PostgreSQLConnections
from index.postgres.document_store import PostgreSQLDocumentStore
from index.postgres.history import attach, is_known, read_attachments
from index.postgres.schema import holds_store
from index.postgres.schema import read_space as read_database_space
from index.postgres.statements import lock_counters
from index.replica.changes import Position
from index.replica.copied_store import read_position
from index.replica.copy_mark import check_may_copy, mark_copy
from index.sqlite.connections import SQLiteConnections
from index.store.schema import read_space

_log = logging.getLogger(__name__)


def open_database(
    store: Path,
    database: Database,
    space: VectorSpace,
    begin: Callable[[], None],
    remove: Callable[[], None],
) -> PostgreSQLDocumentStore:
    """Open the database of a data directory whose lock this process holds.

    Args:
        store: the file of the copy, which may be missing.
        database: to open; it gets the tables of an empty store if it has none.
        space: of the vectors.
        begin: prepares the copy to be written; raises StoreError if it is damaged.
        remove: removes the copy, with everything made of it. It is called if the copy is damaged,
            or of another history.

    Raises:
        FingerprintMismatchError: the vectors in the database are of another checkpoint.
        StoreError: the database cannot be used, or the directory has documents of its own.
    """
    check_may_copy(store.parent, store, database.address)
    opened = PostgreSQLDocumentStore(
        database.address, fingerprint=space.fingerprint, dimension=space.dimension
    )
    try:
        mark_copy(store.parent, database.address)
        reason = _why_not(store, opened, begin)
        if reason is not None:
            _log.warning("%s: the local copy is made anew: %s", store.parent, reason)
            remove()
    except BaseException:
        opened.close()
        raise
    return opened


def fetch_attachments(path: Path, database: Database, names: tuple[str, ...]) -> VectorSpace | None:
    """Write the small files that belong to the vectors of a database into a data directory.

    Files that the database does not have are removed.

    Returns:
        The space of its vectors; None if it has no store.

    Raises:
        StoreError: the database cannot be used, or the directory has documents of its own.
    """
    with closing(PostgreSQLConnections(database.address, read_only=True)) as connections:
        if not holds_store(connections):
            return None
        space, _ = read_database_space(connections)
        with connections.reading() as session:
            found = read_attachments(session)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in names:
            file = path / name
            if name not in found:
                file.unlink(missing_ok=True)
            elif not file.exists() or file.read_bytes() != found[name]:
                write_atomically(file, found[name])
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    return space


def attach_file(path: Path, database: Database) -> None:
    """Let all copies of a database have a small file that belongs to its vectors.

    Raises:
        StoreError: the database cannot be written.
    """
    connections = PostgreSQLConnections(database.address)
    with closing(connections), connections.writing() as session:
        lock_counters(session)
        attach(session, {path.name: path.read_bytes()})


def position_of(store: Path) -> Position:
    """Return how far the copy in a file has followed.

    Raises:
        StoreError: it cannot be read.
    """
    connections = SQLiteConnections(store, read_only=True)
    with closing(connections), connections.reading() as connection:
        return read_position(connection)


def _why_not(
    store: Path, database: PostgreSQLDocumentStore, begin: Callable[[], None]
) -> str | None:
    """Return why a copy cannot follow the database; None if it can, or there is none."""
    if not store.is_file():
        return None
    try:
        begin()
        if read_space(store).fingerprint != database.fingerprint:
            return "its vectors are of another checkpoint"
        position = position_of(store)
    except StorageError:
        raise
    except StoreError as error:
        return str(error)
    if position.revision is None:
        return "it was not begun"
    with database.connections.reading() as session:
        known = is_known(session, position.revision)
    return None if known else "it is of another history of the database, or too old"

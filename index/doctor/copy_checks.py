"""Checks of the copy of a PostgreSQL: every document is compared with the database."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from index.doctor.findings import Finding, Remedy
from index.errors import DamagedDocumentError
from index.postgres.address import Database
from index.postgres.connections import PostgreSQLConnections
from index.postgres.copies import PostgreSQLRows, reading_rows
from index.postgres.history import read_revision
from index.progress import Progress
from index.replica.copied_store import read_position
from index.replica.whole_rows import SQLiteRows, digest_of
from index.sqlite.connections import SQLiteConnections

_ATTEMPTS = 50  # a server follows the database meanwhile
_WAIT_SECONDS = 0.1


def examine_copy(store: Path, database: Database, progress: Progress) -> Iterator[Finding]:
    """Compare a copy with its database, document by document; servers may be running.

    Args:
        store: the file of the copy.
        database: that it is a copy of.
        progress: of reading both.

    Raises:
        StoreError: the database or the copy cannot be read.
    """
    with (
        closing(PostgreSQLConnections(database.address, read_only=True)) as there,
        closing(SQLiteConnections(store, read_only=True)) as here,
    ):
        for _ in range(_ATTEMPTS):
            with reading_rows(there) as rows, here.reading() as connection:
                if read_position(connection).revision == read_revision(rows.session)[0]:
                    yield from _compare(SQLiteRows(connection, store), rows, progress)
                    return
            time.sleep(_WAIT_SECONDS)
    yield Finding(store.name, "does not follow the database", Remedy.COPY_AGAIN)


def _compare(copy: SQLiteRows, rows: PostgreSQLRows, progress: Progress) -> Iterator[Finding]:
    progress.started("comparing with the database", 2 * rows.counters().documents)
    try:
        theirs = digest_of(rows.after, progress.advanced)
    except DamagedDocumentError as error:
        yield Finding("the database", str(error), Remedy.PUT_AGAIN)
        return
    try:
        ours = digest_of(copy.after, progress.advanced)
    except DamagedDocumentError as error:
        yield Finding(copy.path.name, str(error), Remedy.COPY_AGAIN)
        return
    if ours != theirs:
        problem = f"has {ours[0]} documents that are not the {theirs[0]} of the database"
        yield Finding(copy.path.name, problem, Remedy.COPY_AGAIN)

"""Move the documents of a data directory to a PostgreSQL, or those of one to a new data directory.

    .migrating/    the new data directory, until it is complete; a killed migration resumes there

Both ways documents keep their vectors, block vectors, metadata, times and vector ids. A batch is a
transaction, so a migration that was killed goes on after the last one. At the end everything is
read again on both sides, and compared by counts and by a digest.
"""

import json
import shutil
from contextlib import closing
from pathlib import Path

from encoder.adapter import VectorSpace
from encoder.atomic_files import write_atomically
from index.build import publish
from index.directory.content_swap import ARRIVING, swap_in
from index.directory.data_directory import (
    ADAPTER_FILE,
    CALIBRATION_FILE,
    CONTENT,
    FUSION_FILE,
    LOCK_FILE,
    SNAPSHOTS_DIRECTORY,
    STORE_FILE,
    locked,
    open_data_directory,
    settle,
)
from index.directory.file_digest import remove_digest, verify_digest
from index.doctor.rebuild import rebuild_lexical_index
from index.errors import StoreError
from index.postgres.address import PostgreSQLAddress
from index.postgres.connections import PostgreSQLConnections
from index.postgres.copies import (
    PostgreSQLRows,
    begin_filling,
    fill,
    finish_filling,
    reading_rows,
)
from index.postgres.schema import read_space as read_postgresql_space
from index.progress import Progress
from index.replica.whole_rows import SQLiteRows, digest_of, finish
from index.sqlite.connections import SQLiteConnections
from index.store.schema import create_if_missing, read_space
from index.store.statements import insert_rows

MIGRATING = ".migrating"
_SOURCE_FILE = "source.json"
_FILES = (ADAPTER_FILE, CALIBRATION_FILE, FUSION_FILE)  # which belong to the vectors
_DOCUMENTS_A_BATCH = 128

Rows = SQLiteRows | PostgreSQLRows


class CopyDiffersError(StoreError):
    """What was copied is not what is in the source now."""


def migrate_to(data: Path, address: PostgreSQLAddress, progress: Progress) -> int:
    """Copy the documents of a data directory, which stays as it is, to a PostgreSQL; resumable.

    Returns:
        How many documents there are.

    Raises:
        DataDirectoryInUseError: a server has the directory open.
        StoreError: there is no data directory, a document in it is damaged, the database cannot
            be used, it holds other documents or vectors of another checkpoint, or the copy differs
            from the source.
    """
    settle(data)
    space = read_space(data / STORE_FILE)
    with locked(data):
        verify_digest(data / STORE_FILE)
        with (
            closing(PostgreSQLConnections(address)) as target,
            closing(SQLiteConnections(data / STORE_FILE, read_only=True)) as source,
            source.reading() as connection,
        ):
            rows = SQLiteRows(connection, data / STORE_FILE)
            counters = rows.counters()
            filled, finished = begin_filling(target, space, f"{rows.created()} {counters}")
            progress.started("copying", counters.documents)
            progress.advanced(filled.documents)
            while count := fill(target, lambda last: rows.after(last, _DOCUMENTS_A_BATCH)):
                progress.advanced(count)
            attachments = {**_read_files(data), **_alignment(rows)}
            with reading_rows(target, unfinished=True) as copied:
                _compare(rows, copied, counters.documents, progress, address)
            if not finished:  # then it may be in use, and be ahead
                finish_filling(target, counters, attachments)
            return counters.documents


def migrate_from(data: Path, address: PostgreSQLAddress, progress: Progress) -> int:
    """Make a new data directory of the documents in a PostgreSQL, which stay there; resumable.

    Returns:
        How many documents there are.

    Raises:
        DataDirectoryInUseError: another process has the directory open.
        StoreError: the directory has other documents already, or cannot be written; the database
            cannot be used, a document in it is damaged, or the copy differs from it.
    """
    settle(data)
    with closing(PostgreSQLConnections(address, read_only=True)) as source:
        space, _ = read_postgresql_space(source)
        if (data / STORE_FILE).exists():
            with reading_rows(source) as rows, locked(data):
                return _verify_again(data, rows, progress)
        with reading_rows(source) as rows, locked(data):
            beside = _open_beside(data, space, rows)
            documents = _fill_beside(beside, rows, progress)
            with closing(
                open_data_directory(
                    beside, fingerprint=space.fingerprint, dimension=space.dimension
                )
            ) as made:
                if made.store.families.pending():
                    made.store.families.find(progress)
                made.store.alignment.refresh(progress, fit=False)
                publish(made, progress)
            (beside / LOCK_FILE).unlink(missing_ok=True)
            (beside / _SOURCE_FILE).unlink()
            shutil.rmtree(data / ARRIVING, ignore_errors=True)
            beside.replace(data / ARRIVING)
            swap_in(data, CONTENT)
    return documents


def _verify_again(data: Path, rows: PostgreSQLRows, progress: Progress) -> int:
    """Compare a directory that has a store: a migration may have been killed at its very end.

    Raises:
        StoreError: it holds something else.
    """
    store, counters = data / STORE_FILE, rows.counters()
    with (
        closing(SQLiteConnections(store, read_only=True)) as connections,
        connections.reading() as connection,
    ):
        copied = SQLiteRows(connection, store)
        if copied.counters() != counters:
            raise StoreError(f"{data}: holds documents already: name a new data directory")
        _compare(rows, copied, counters.documents, progress, data)
    return counters.documents


def _open_beside(data: Path, space: VectorSpace, rows: PostgreSQLRows) -> Path:
    """Return the folder that is filled; what was filled from another state is thrown away."""
    beside = data / MIGRATING
    source = json.dumps([str(rows.address), space.fingerprint, str(rows.counters())])
    mark = beside / _SOURCE_FILE
    try:
        if not mark.is_file() or mark.read_text(encoding="utf-8") != source:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir()
            write_atomically(mark, source.encode())
    except OSError as error:
        raise StoreError(f"{beside}: cannot be written: {error}") from error
    remove_digest(beside / STORE_FILE)
    create_if_missing(beside / STORE_FILE, space.fingerprint, space.dimension)
    return beside


def _fill_beside(beside: Path, rows: PostgreSQLRows, progress: Progress) -> int:
    counters = rows.counters()
    store = beside / STORE_FILE
    with closing(SQLiteConnections(store, read_only=False)) as target:
        with target.reading() as connection:
            last = SQLiteRows(connection, store).last()
            filled = SQLiteRows(connection, store).counters().documents
        progress.started("copying", counters.documents)
        progress.advanced(filled)
        while batch := rows.after(last, _DOCUMENTS_A_BATCH):
            with target.writing() as connection:
                insert_rows(connection, batch)
            last = batch[-1].vector_id
            progress.advanced(len(batch))
        attachments = rows.attachments()
        for name in _FILES:
            if name in attachments:
                write_atomically(beside / name, attachments[name])
        try:
            with target.reading() as connection:
                copied = SQLiteRows(connection, store)
                _compare(rows, copied, counters.documents, progress, beside)
        except CopyDiffersError:
            shutil.rmtree(beside, ignore_errors=True)  # a repetition begins anew
            raise
        finish(target, counters, attachments)
        rebuild_lexical_index(target, progress)
    shutil.rmtree(beside / SNAPSHOTS_DIRECTORY, ignore_errors=True)
    return counters.documents


def _compare(source: Rows, copy: Rows, documents: int, progress: Progress, name: object) -> None:
    """Compare all documents of both sides, which are read again.

    Raises:
        CopyDiffersError: they differ.
    """
    progress.started("verifying both sides", 2 * documents)
    ours, theirs = (digest_of(one.after, progress.advanced) for one in (source, copy))
    if ours != theirs or ours[0] != documents:
        raise CopyDiffersError(
            f"{name}: the copy has {theirs[0]} documents with the digest {theirs[1][:12]}, and its "
            f"source {ours[0]} with {ours[1][:12]}: one of them was changed: remove the copy and "
            "begin again"
        )


def _read_files(data: Path) -> dict[str, bytes]:
    try:
        return {name: (data / name).read_bytes() for name in _FILES if (data / name).exists()}
    except OSError as error:
        raise StoreError(f"{data}: cannot be read: {error}") from error


def _alignment(rows: SQLiteRows) -> dict[str, bytes]:
    try:
        return dict(rows.alignment())
    except ValueError as error:
        raise StoreError(f"{rows.path}: {error}; run longmatch doctor --repair") from error

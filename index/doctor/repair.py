"""Repair a data directory: copy the truth, and make everything that follows from it again.

Vectors follow from the texts, the index from the vectors. Documents whose text has changed are left
out of the copy, and appended to a file. A kill leaves the directory as it was, or repaired.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

from encoder.alignment.space import open_space
from encoder.checkpoint import Checkpoint, vector_space
from encoder.opening import open_encoder
from index.build import publish, refit_alignment
from index.directory.data_directory import (
    ARRIVING,
    DAMAGED_FILE,
    FITTED,
    STORE_FILE,
    locked,
    open_data_directory,
    swap_in,
)
from index.doctor.examine import DERIVED_TABLES, Finding, Remedy, share_if_readable
from index.errors import StoreError
from index.followers import FILE_ENDINGS
from index.progress import Progress
from index.sqlite.block_vectors import block_vectors_of, insert_block_vectors
from index.sqlite.connections import (
    DATABASE_ERRORS,
    SQLiteConnections,
    open_reader,
    storage_error,
    translated_errors,
    vector_id_list,
)
from index.store.checksums import write_checksums
from index.store.filters import insert_metadata
from index.store.rows import advance_sequence, insert_vector
from index.store.schema import create_if_missing, read_space

_IN_THE_STORE = (Remedy.REBUILD, Remedy.ENCODE, Remedy.REMOVE_DAMAGED)
# What maintenance knows; without them it begins again.
_STATE = ("common_text", "maintenance_state")
_TEXTS = """
SELECT vector_id, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_VECTOR_IDS = """
SELECT vector_id FROM documents ORDER BY vector_id"""
_METADATA = """
SELECT vector_id, metadata FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_DAMAGED = """
SELECT id, title, text, metadata FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""
_ENCODED_A_TRANSACTION = 64
_ROWS_A_TRANSACTION = 256


def repair(
    data: Path,
    checkpoint: Checkpoint,
    findings: Sequence[Finding],
    precision: str | None,
    progress: Progress,
) -> None:
    """Apply the remedies of the repairable findings; `examine` again afterwards.

    Raises:
        DataDirectoryInUseError: a server has the directory open and must be stopped first.
        EncoderError: the checkpoint cannot encode.
        SnapshotError: the index could not be published.
        StoreError: something cannot be written.
    """
    with locked(data):
        for finding in findings:
            path = data / finding.what
            if finding.remedy is Remedy.DELETE and path.is_dir():
                shutil.rmtree(path)
            elif finding.remedy is Remedy.DELETE:
                for ending in FILE_ENDINGS:
                    path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        if any(f.what == STORE_FILE and not f.remedy.repairable for f in findings):
            return
        checkpoint = share_if_readable(data, checkpoint)
        if any(finding.remedy in _IN_THE_STORE for finding in findings):
            try:
                _make_content(data, checkpoint, findings, precision, progress)
            except OSError as error:
                failure = storage_error(data / STORE_FILE, error)
                raise failure or StoreError(f"{data}: cannot be written: {error}") from error
            swap_in(data)
    space = vector_space(checkpoint)
    with closing(
        open_data_directory(
            data,
            fingerprint=space.fingerprint,
            dimension=space.dimension,
            alignment=open_space(checkpoint),
        )
    ) as directory:
        if directory.store.alignment.pending():
            refit_alignment(directory.store, progress)
        directory.store.families.find(progress)
        publish(directory, progress)


def _make_content(
    data: Path,
    checkpoint: Checkpoint,
    findings: Sequence[Finding],
    precision: str | None,
    progress: Progress,
) -> None:
    """Make the content that is to replace the damaged one."""
    lost = _named_by(findings, Remedy.REMOVE_DAMAGED)
    again = _named_by(findings, Remedy.ENCODE)
    content = data / ARRIVING
    shutil.rmtree(content, ignore_errors=True)
    content.mkdir()
    try:
        for name in FITTED:
            with suppress(FileNotFoundError):
                shutil.copy(data / name, content / name)
        copy_truth(data / STORE_FILE, content / STORE_FILE, lost)
        if again:
            _encode_again(content, checkpoint, again, precision, progress)
        derive(content / STORE_FILE, progress)
        if lost:
            _set_aside(data / STORE_FILE, lost)
    except BaseException:
        shutil.rmtree(content, ignore_errors=True)
        raise


def _named_by(findings: Sequence[Finding], remedy: Remedy) -> list[int]:
    """Return the vector ids that the findings of a remedy name, ascending."""
    return sorted(
        number for finding in findings if finding.remedy is remedy for number in finding.vector_ids
    )


def copy_truth(source: Path, target: Path, lost: Sequence[int] = ()) -> None:
    """Copy what nothing else gives of a store into a new one, without the documents `lost`.

    Every row is read by its key, so that no damaged index of SQLite's is asked.

    Raises:
        StoreError: a row cannot be read, or the copy not be written.
    """
    space = read_space(source)
    create_if_missing(target, space.fingerprint, space.dimension)
    with translated_errors(target), closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("ATTACH ? AS source", (f"{source}",))
        connection.execute(
            "CREATE TEMP TABLE lost AS SELECT value FROM json_each(?)", (vector_id_list(lost),)
        )
        for table in _tables_of_truth(connection):
            where = "true"
            if table == "documents":
                where = "vector_id NOT IN lost"
            elif table == "sqlite_sequence":
                where = "name = 'documents'"  # so that no vector id is given twice
            elif connection.execute(f"PRAGMA foreign_key_list({table})").fetchone():
                where = "vector_id IN (SELECT vector_id FROM documents)"
            connection.execute(f"DELETE FROM {table} WHERE {where}")  # noqa: S608
            with suppress(*DATABASE_ERRORS) if table in _STATE else nullcontext():
                connection.execute(
                    f"INSERT INTO {table} SELECT * FROM source.{table} NOT INDEXED WHERE {where}"  # noqa: S608
                )
        advance_sequence(connection)


def _tables_of_truth(connection: sqlite3.Connection) -> list[str]:
    """Return the tables of a store that hold the truth, in the order in which they were created."""
    names = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")
    return [name for (name,) in names if name not in DERIVED_TABLES]


def derive(store: Path, progress: Progress) -> None:
    """Fill the table of the values that filters read, which is empty.

    Raises:
        StoreError: it cannot be written.
    """
    with closing(SQLiteConnections(store, read_only=False)) as connections:
        ids = [row[0] for row in connections.read_rows(_VECTOR_IDS)]
        progress.started("indexing metadata", len(ids))
        for start in range(0, len(ids), _ROWS_A_TRANSACTION):
            some = ids[start : start + _ROWS_A_TRANSACTION]
            with connections.writing() as connection:
                rows = connection.execute(_METADATA, (vector_id_list(some),)).fetchall()
                insert_metadata(connection, [(n, json.loads(metadata)) for n, metadata in rows])
            progress.advanced(len(some))


def _encode_again(
    data: Path,
    checkpoint: Checkpoint,
    vector_ids: Sequence[int],
    precision: str | None,
    progress: Progress,
) -> None:
    """Replace vectors, block vectors and checksums of documents, whose texts are sound."""
    encoder = open_encoder(checkpoint, precision=precision)
    progress.started("encoding again", len(vector_ids))
    with closing(SQLiteConnections(data / STORE_FILE, read_only=False)) as connections:
        for start in range(0, len(vector_ids), _ENCODED_A_TRANSACTION):
            some = vector_ids[start : start + _ENCODED_A_TRANSACTION]
            with connections.writing() as connection:
                texts = connection.execute(_TEXTS, (vector_id_list(some),)).fetchall()
                read = [encoder.read(text) for _, text in texts]
                encoded = encoder.encode(read)
                sequence = advance_sequence(connection)
                for (number, _), blocks, vector, rows in zip(
                    texts, read, encoded.document_vectors, encoded.block_vectors, strict=True
                ):
                    for table in ("vectors", "block_vectors"):
                        connection.execute(f"DELETE FROM {table} WHERE vector_id = ?", (number,))  # noqa: S608
                    insert_vector(connection, number, sequence, vector)
                    insert_block_vectors(connection, number, block_vectors_of(blocks, rows))
                write_checksums(connection, some)
            tokens = sum(blocks.receipt.tokens_encoded for blocks in read)
            progress.advanced(len(some), tokens=tokens)


def _set_aside(store: Path, vector_ids: Sequence[int]) -> None:
    """Append documents to a file of JSON Lines, durably.

    A text that has changed cannot be made again from anything else. Bytes that are no text any more
    become U+FFFD; metadata that is no JSON stays a text.

    Raises:
        OSError: the file cannot be written.
        StoreError: the store cannot be read.
    """
    with translated_errors(store), closing(open_reader(store)) as connection:
        rows = connection.execute(_DAMAGED, (vector_id_list(vector_ids),)).fetchall()
    with store.with_name(DAMAGED_FILE).open("a", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(_fields(row))}\n" for row in rows)
        lines.flush()
        os.fsync(lines.fileno())


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    document_id, title, text, metadata = row
    try:
        metadata = json.loads(metadata)
    except (TypeError, ValueError, RecursionError):
        metadata = str(metadata)
    return {"id": str(document_id), "title": str(title), "text": str(text), "metadata": metadata}

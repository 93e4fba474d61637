"""Repair a data directory: rebuild what follows from the rest of it.

Words, vectors and families follow from the texts, the index from the vectors. Documents whose text
has changed are removed first, into a file. Nothing else is touched that cannot be rebuilt.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from encoder.adapter import vector_space
from encoder.alignment.space import open_space
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import EncodedBatch, OnnxEncoder
from index.adapt import read_corpus_adapter
from index.build import refit_alignment
from index.common_text.collection import read_common_text
from index.directory.data_directory import STORE_FILE, locked, open_data_directory
from index.directory.file_digest import remove_digest
from index.doctor.examine import share_if_readable
from index.doctor.findings import Finding, Remedy
from index.errors import StoreError
from index.followers import FILE_ENDINGS
from index.lexical.tables import (
    LEXICAL_SCHEMA,
    LEXICAL_TABLES,
    DamagedTermsError,
    insert_terms,
    read_document_terms,
)
from index.lexical.terms import count_terms_and_titles, known_titles
from index.lexical.title_refresh import note_titles_are_fresh
from index.progress import Progress, SilentProgress
from index.sqlite.block_vectors import block_vectors_of, insert_block_vectors
from index.sqlite.connections import SQLiteConnections, translated_errors, vector_id_list
from index.store.checksums import CHECKSUMS_SCHEMA, write_checksums
from index.store.filters import METADATA_SCHEMA, insert_metadata
from index.store.rows import advance_sequence, insert_vector, remove_documents

_TEXTS = """
SELECT vector_id, content_hash, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?))"""


def texts_of(connection: sqlite3.Connection, vector_ids: Sequence[int]) -> dict[int, str]:
    """Return those of these texts that still match their hash, by vector id."""
    rows = connection.execute(_TEXTS, (vector_id_list(vector_ids),))
    return {
        vector_id: text
        for vector_id, content_hash, text in rows
        if sha256(text.encode()).digest() == content_hash
    }


def replace_vectors(
    connection: sqlite3.Connection,
    blocks: Mapping[int, SentenceBlocks],
    encoded: EncodedBatch,
) -> None:
    """Replace the vectors and the block vectors of these vector ids.

    The index must be rebuilt afterwards: it holds the old ones under the same ids.
    """
    sequence = advance_sequence(connection)
    for (vector_id, read), vector, rows in zip(
        blocks.items(), encoded.document_vectors, encoded.block_vectors, strict=True
    ):
        for table in ("vectors", "block_vectors"):
            connection.execute(f"DELETE FROM {table} WHERE vector_id = ?", (vector_id,))  # noqa: S608
        insert_vector(connection, vector_id, sequence, vector)
        insert_block_vectors(connection, vector_id, block_vectors_of(read, rows))
    write_checksums(connection, blocks)


_DOCUMENTS_A_TRANSACTION = 64


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
    remedies: set[Remedy] = {finding.remedy for finding in findings if finding.remedy.repairable}
    if not remedies:
        return
    checkpoint = share_if_readable(data, checkpoint)
    with locked(data):
        for name in {finding.what for finding in findings if finding.remedy is Remedy.DELETE}:
            for ending in FILE_ENDINGS:
                (data / f"{name}{ending}").unlink(missing_ok=True)
        remove_digest(data / STORE_FILE)
        lost = _named_by(findings, Remedy.REMOVE_DAMAGED)
        _repair_database(data / STORE_FILE, remedies, sorted(lost))
        again = sorted(_named_by(findings, Remedy.ENCODE) - lost)
        if again:
            _encode_again(data, checkpoint, again, precision, progress)
    if any(finding.what == STORE_FILE and not finding.remedy.repairable for finding in findings):
        return  # the store cannot be opened for writing, or must get no digest
    space = vector_space(checkpoint, read_corpus_adapter(data, checkpoint))
    with closing(
        open_data_directory(
            data,
            fingerprint=space.fingerprint,
            dimension=space.dimension,
            alignment=open_space(checkpoint),
        )
    ) as directory:
        if again or Remedy.REBUILD_INDEX in remedies:
            progress.started("building the index", None)
            directory.index.rebuild()
        if remedies & {Remedy.REBUILD_LEXICAL_INDEX, Remedy.PUBLISH_LEXICAL_INDEX}:
            directory.store.lexical.publish()
        if directory.store.alignment.pending():
            refit_alignment(directory.store, progress)
        if directory.store.families.pending():
            directory.store.families.find(progress)


def _named_by(findings: Sequence[Finding], remedy: Remedy) -> set[int]:
    """Return the vector ids that the findings of a remedy name."""
    return {
        number for finding in findings if finding.remedy == remedy for number in finding.vector_ids
    }


def _repair_database(store: Path, remedies: set[Remedy], lost: Sequence[int]) -> None:
    """Repair the tables, after removing the documents that nothing can be rebuilt from."""
    if Remedy.REINDEX_DATABASE in remedies:
        with translated_errors(store), closing(sqlite3.connect(store)) as connection:
            connection.execute("REINDEX")
            connection.commit()
    with closing(SQLiteConnections(store, read_only=False)) as connections:
        if lost and remove_damaged(connections, store.with_name(DAMAGED_FILE), lost):
            remedies.add(Remedy.REBUILD_LEXICAL_INDEX)
        if Remedy.REBUILD_LEXICAL_INDEX in remedies:
            rebuild_lexical_index(connections, SilentProgress())
        if Remedy.REBUILD_METADATA_VALUES in remedies:
            with connections.writing() as connection:
                rebuild_metadata_values(connection, store)
        if Remedy.ALIGN in remedies:
            with connections.writing() as connection:
                connection.execute("DELETE FROM alignment_spaces")  # opening starts with another
        if Remedy.REBUILD_CHECKSUMS in remedies:
            rebuild_checksums(connections)


def _encode_again(
    data: Path,
    checkpoint: Checkpoint,
    vector_ids: Sequence[int],
    precision: str | None,
    progress: Progress,
) -> None:
    tokenizer = open_document_tokenizer(checkpoint)
    encoder = OnnxEncoder(
        checkpoint, precision=precision, adapter=read_corpus_adapter(data, checkpoint)
    )
    progress.started("encoding again", len(vector_ids))
    with closing(SQLiteConnections(data / STORE_FILE, read_only=False)) as connections:
        for start in range(0, len(vector_ids), _DOCUMENTS_A_TRANSACTION):
            some = vector_ids[start : start + _DOCUMENTS_A_TRANSACTION]
            with connections.reading() as connection:
                texts = texts_of(connection, some)
            if not texts:
                continue
            blocks = {vector_id: tokenizer(text) for vector_id, text in texts.items()}
            encoded = encoder.encode(list(blocks.values()))
            with connections.writing() as connection:
                replace_vectors(connection, blocks, encoded)
            tokens = sum(read.receipt.tokens_encoded for read in blocks.values())
            progress.advanced(len(some), tokens=tokens)


_ROWS_A_TRANSACTION = 256
_NEXT_TEXTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""


def rebuild_metadata_values(connection: sqlite3.Connection, path: Path) -> None:
    """Rebuild the table that filters read from the stored metadata.

    Raises:
        StoreError: the metadata of a document is damaged.
    """
    connection.execute("DROP TABLE IF EXISTS metadata_values")
    connection.execute(METADATA_SCHEMA)
    for vector_id, metadata in connection.execute("SELECT vector_id, metadata FROM documents"):
        try:
            insert_metadata(connection, [(vector_id, dict(json.loads(metadata)))])
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}: the metadata of a document is damaged") from error


def rebuild_checksums(connections: SQLiteConnections) -> None:
    """Compute the checksums of all rows as they are now.

    Raises:
        StoreError: they cannot be written.
    """
    with connections.writing() as connection:
        connection.execute("DROP TABLE IF EXISTS checksums")
        connection.execute(CHECKSUMS_SCHEMA)
        for ids in _vector_ids_in_parts(connection):
            write_checksums(connection, ids)


def rebuild_lexical_index(connections: SQLiteConnections, progress: Progress) -> None:
    """Rebuild the lexical index from the stored texts, with the titles that they name.

    Raises:
        StoreError: it cannot be written, or a text is damaged.
    """
    with connections.writing() as connection:
        for table in LEXICAL_TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in LEXICAL_SCHEMA:
            connection.execute(statement)
        (number,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        titles = known_titles(row[0] for row in connection.execute("SELECT title FROM documents"))
        common = read_common_text(connection)
    progress.started("indexing words", number)
    last = 0
    while True:
        with connections.writing() as connection:
            rows = connection.execute(_NEXT_TEXTS, (last, _ROWS_A_TRANSACTION)).fetchall()
            counted = [
                (n, count_terms_and_titles(text, titles, title, common)) for n, title, text in rows
            ]
            insert_terms(connection, counted)
            if not rows:
                note_titles_are_fresh(connection)
                return
        last = int(rows[-1][0])
        progress.advanced(len(rows))


def _vector_ids_in_parts(connection: sqlite3.Connection) -> Iterator[list[int]]:
    ids = [row[0] for row in connection.execute("SELECT vector_id FROM documents")]
    for start in range(0, len(ids), _ROWS_A_TRANSACTION):
        yield ids[start : start + _ROWS_A_TRANSACTION]


DAMAGED_FILE = "damaged.jsonl"
_DAMAGED = """
SELECT id, title, text, metadata FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""


def remove_damaged(connections: SQLiteConnections, file: Path, vector_ids: Sequence[int]) -> bool:
    """Append documents to a file of JSON Lines, durably, and remove them from the store.

    A text that has changed cannot be made again from anything else, and left in the store it would
    stand in the way of all that is rebuilt from the texts. Bytes that are no text any more become
    U+FFFD; metadata that is no JSON stays a text.

    Returns:
        Whether the lexical index must be rebuilt, because the words of one cannot be read.

    Raises:
        StoreError: the file or the store cannot be written; the documents are still stored.
    """
    with connections.writing() as connection:
        rows = connection.execute(_DAMAGED, (vector_id_list(vector_ids),)).fetchall()
        try:
            with file.open("a", encoding="utf-8") as lines:
                lines.writelines(f"{json.dumps(_fields(row))}\n" for row in rows)
                lines.flush()
                os.fsync(lines.fileno())
        except OSError as error:
            raise StoreError(f"{file}: cannot be written: {error.strerror}") from error
        damaged = [
            vector_id for vector_id in vector_ids if not _has_sound_terms(connection, vector_id)
        ]
        for vector_id in damaged:
            connection.execute("DELETE FROM document_terms WHERE vector_id = ?", (vector_id,))
        remove_documents(connection, vector_ids, advance_sequence(connection))
    return bool(damaged)


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    document_id, title, text, metadata = row
    try:
        metadata = json.loads(metadata)
    except (TypeError, ValueError, RecursionError):
        metadata = str(metadata)
    return {"id": str(document_id), "title": str(title), "text": str(text), "metadata": metadata}


def _has_sound_terms(connection: sqlite3.Connection, vector_id: int) -> bool:
    try:
        read_document_terms(connection, [vector_id])
    except DamagedTermsError:
        return False
    return True

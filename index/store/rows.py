"""Rows of the store's tables: their statements, inside a transaction, and rows as records."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from encoder.blocks import Receipt
from index.document import Document, metadata_json
from index.errors import DamagedDocumentError, DocumentError, StoreError
from index.sqlite.block_vectors import pack_block_vectors
from index.sqlite.connections import utc_now, vector_id_list
from index.sqlite.task_state import LOG_START, read_count
from index.store.checksums import insert_checksums
from index.store.filters import insert_metadata, remove_metadata
from index.store.records import DocumentRow, EncodedDocument, StoredDocument

# A list of ids is passed as one JSON array: SQLite limits the variables of a statement. Checksums
# come last, for `index.store.checksums`.
DOCUMENTS_BY_ID = """
SELECT d.vector_id, d.id, d.text, d.title, d.metadata, d.tokens, d.tokens_read, d.blocks,
    d.blocks_left_out, d.tokens_encoded, d.payload_characters, d.indexed_at,
    c.summary, c.details, c.vector, c.blocks
FROM documents d LEFT JOIN checksums c USING (vector_id)
WHERE d.id IN (SELECT value FROM json_each(?))"""
SUMMARIES = """
SELECT d.vector_id, d.id, d.title, d.metadata, c.summary, c.details, c.vector, c.blocks
FROM documents d LEFT JOIN checksums c USING (vector_id)
WHERE d.vector_id IN (SELECT value FROM json_each(?))"""
CONTENT_HASHES = """
SELECT id, vector_id, content_hash
FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
VECTORS = """
SELECT v.vector_id, v.vector, c.summary, c.details, c.vector, c.blocks
FROM vectors v LEFT JOIN checksums c USING (vector_id)
WHERE v.vector_id IN (SELECT value FROM json_each(?)) ORDER BY v.vector_id"""
CHECKED_BLOCKS = """
SELECT b.vector_id, b.offsets, b.vectors, c.summary, c.details, c.vector, c.blocks
FROM block_vectors b LEFT JOIN checksums c USING (vector_id)
WHERE b.vector_id IN (SELECT value FROM json_each(?))"""
# Without ORDER BY vector_id, for which SQLite would walk the table instead of the sequence index.
ADDED_SINCE = """
SELECT vector_id FROM vectors WHERE sequence > ?"""
REMOVED_SINCE = """
SELECT vector_id FROM removals WHERE sequence > ?1 AND added <= ?1"""

_INSERT_DOCUMENT = """
INSERT INTO documents (vector_id, id, content_hash, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at, title, metadata, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_VECTOR = """
INSERT INTO vectors (vector_id, sequence, vector) VALUES (?, ?, ?)"""
_INSERT_BLOCKS = """
INSERT INTO block_vectors (vector_id, offsets, vectors) VALUES (?, ?, ?)"""
# As AUTOINCREMENT gives the next one.
_LAST_VECTOR_ID = """
SELECT max(coalesce((SELECT max(vector_id) FROM documents), 0),
    coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'documents'), 0))"""
_INSERT_REMOVALS = """
INSERT INTO removals (vector_id, added, sequence)
SELECT vector_id, sequence, ? FROM vectors WHERE vector_id IN (SELECT value FROM json_each(?))"""
_REVISE = """
INSERT OR REPLACE INTO revisions (vector_id, sequence)
SELECT vector_id, ? FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_DESCRIPTION = """
SELECT title, metadata FROM documents WHERE vector_id = ?"""
_DESCRIBE = """
UPDATE documents SET title = ?, metadata = ? WHERE vector_id = ?"""
_DELETE_DOCUMENTS = """
DELETE FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


def read_sequence(connection: sqlite3.Connection) -> int:
    """Return how often the store has changed."""
    (sequence,) = connection.execute("SELECT sequence FROM meta").fetchone()
    return int(sequence)


def read_log_start(connection: sqlite3.Connection) -> int:
    """Return the sequence since which every removal is logged."""
    return read_count(connection, LOG_START) or 0


def advance_sequence(connection: sqlite3.Connection) -> int:
    """Count a change and return the new sequence."""
    connection.execute("UPDATE meta SET sequence = sequence + 1")
    return read_sequence(connection)


def next_vector_ids(connection: sqlite3.Connection, count: int) -> list[int]:
    """Return the vector ids of the next documents; inserting these gives them away."""
    (last,) = connection.execute(_LAST_VECTOR_ID).fetchone()
    return list(range(last + 1, last + 1 + count))


def insert_rows(connection: sqlite3.Connection, rows: Sequence[DocumentRow]) -> None:
    """Insert new documents under their vector ids, without what is derived from their texts."""
    connection.executemany(
        _INSERT_DOCUMENT,
        [
            (
                *(row.vector_id, row.document_id, row.content_hash, *row.receipt),
                *(row.indexed_at, row.title, row.metadata, row.text),
            )
            for row in rows
        ],
    )
    connection.executemany(
        _INSERT_VECTOR, [(row.vector_id, row.sequence, row.vector) for row in rows]
    )
    connection.executemany(
        _INSERT_BLOCKS,
        [
            (row.vector_id, row.offsets, row.block_vectors)
            for row in rows
            if row.offsets is not None
        ],
    )
    insert_metadata(connection, [(row.vector_id, json.loads(row.metadata)) for row in rows])
    insert_checksums(connection, [row.checked() for row in rows])


def insert_vector(
    connection: sqlite3.Connection, vector_id: int, sequence: int, vector: Float32
) -> None:
    """Insert the vector Float32[dimension] of a document, added at `sequence`."""
    connection.execute(_INSERT_VECTOR, (vector_id, sequence, vector.astype("<f4").tobytes()))


def update_description(connection: sqlite3.Connection, vector_id: int, document: Document) -> bool:
    """Replace title and metadata of a stored document; return whether they were others."""
    description = document.title, metadata_json(document.metadata)
    if connection.execute(_DESCRIPTION, (vector_id,)).fetchone() == description:
        return False
    remove_metadata(connection, [vector_id])
    insert_metadata(connection, [(vector_id, document.metadata)])
    connection.execute(_DESCRIBE, (*description, vector_id))
    return True


def remove_documents(
    connection: sqlite3.Connection, vector_ids: Sequence[int], sequence: int
) -> None:
    """Delete documents with everything stored about them, and log their removal at `sequence`."""
    if not vector_ids:
        return
    id_list = vector_id_list(vector_ids)
    remove_metadata(connection, vector_ids)
    connection.execute(_INSERT_REMOVALS, (sequence, id_list))
    connection.execute(_DELETE_DOCUMENTS, (id_list,))


def revise(connection: sqlite3.Connection, vector_ids: Sequence[int], sequence: int) -> None:
    """Log that title, metadata or what is derived of documents has changed, not their texts."""
    connection.execute(_REVISE, (sequence, vector_id_list(vector_ids)))


UNIT_NORM_TOLERANCE = 1e-3


def check_entries(entries: Sequence[EncodedDocument], dimension: int) -> None:
    """Check documents that are to be stored.

    Raises:
        ValueError: an id twice, or a vector that is not Float32[dimension] of unit norm.
    """
    if not entries:
        return
    seen: set[str] = set()
    for entry in entries:
        name = f"document {entry.document.id!r}"
        if entry.document.id in seen:
            raise ValueError(f"{name} is there twice")
        seen.add(entry.document.id)
        if entry.vector.shape != (dimension,):
            raise ValueError(
                f"{name}: its vector has shape {entry.vector.shape}, not ({dimension},)"
            )
    unit = _have_unit_norm(np.stack([entry.vector for entry in entries]))
    if not unit.all():
        name = entries[int(np.argmin(unit))].document.id
        raise ValueError(f"document {name!r}: its vector has no unit norm")


def new_rows(
    entries: Sequence[EncodedDocument],
    hashes: Mapping[str, bytes],
    vector_ids: Sequence[int],
    sequence: int,
) -> list[DocumentRow]:
    """Return what is stored of new documents.

    Args:
        entries: the documents.
        hashes: of their texts, by document id.
        vector_ids: of each.
        sequence: at which they are added.
    """
    now = utc_now()
    return [
        _new_row(entry, hashes[entry.document.id], vector_id, sequence, now)
        for entry, vector_id in zip(entries, vector_ids, strict=True)
    ]


def stored_vectors(entries: Sequence[EncodedDocument]) -> Float32 | None:
    """Return the vectors Float32[N, dimension] of documents, as they are stored; None for none."""
    if not entries:
        return None
    return np.stack([entry.vector for entry in entries]).astype(np.float32, copy=False)


def stored_document(path: object, row: tuple[Any, ...]) -> StoredDocument:
    """Read a row of `DOCUMENTS_BY_ID`, without checksums, of the store at `path`.

    Raises:
        DamagedDocumentError: it is damaged.
    """
    vector_id, document_id, text, title, metadata, *receipt, indexed_at = row
    try:
        document = Document(document_id, text, title, stored_metadata(path, document_id, metadata))
    except DocumentError as error:
        raise DamagedDocumentError(path, document_id, error.field) from error
    return StoredDocument(vector_id, document, Receipt(*receipt), indexed_at)


def stored_metadata(path: object, document_id: str, text: str) -> dict[str, Any]:
    """Read the metadata of a document of the store at `path`.

    Raises:
        DamagedDocumentError: it is damaged.
    """
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise DamagedDocumentError(path, document_id, "metadata") from error


def vector_arrays(
    path: object, rows: Sequence[tuple[int, bytes]], dimension: int
) -> tuple[Int64, Float32]:
    """Read rows of `VECTORS` of the store at `path`: ids Int64[N], vectors Float32[N, dimension].

    Raises:
        StoreError: a vector is damaged.
    """
    data = b"".join(vector for _, vector in rows)
    if len(data) != len(rows) * dimension * 4:
        raise StoreError(f"{path}: a vector is damaged: its length is wrong")
    vectors = np.frombuffer(data, dtype="<f4").reshape(len(rows), dimension)
    if not _have_unit_norm(vectors).all():
        raise StoreError(f"{path}: a vector is damaged: it has no unit norm")
    ids = np.array([vector_id for vector_id, _ in rows], dtype=np.int64)
    return ids, vectors.astype(np.float32, copy=False)


def _new_row(
    entry: EncodedDocument, content_hash: bytes, vector_id: int, sequence: int, indexed_at: str
) -> DocumentRow:
    document, receipt, blocks = entry.document, entry.receipt, entry.blocks
    packed = (None, None) if blocks is None else pack_block_vectors(blocks)
    return DocumentRow(
        *(vector_id, sequence, document.id, content_hash),
        *(document.title, metadata_json(document.metadata), document.text),
        astuple(receipt),
        *(indexed_at, entry.vector.astype("<f4").tobytes(), *packed),
    )


def _have_unit_norm(vectors: Float32) -> Bool:
    """Return for each of vectors [N, dimension] whether it has."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    unit: Bool = np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE  # False for NaN, too
    return unit

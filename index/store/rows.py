"""Rows of the store's tables: their statements, inside a transaction, and rows as records."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from encoder.blocks import Receipt
from index.document import Document, metadata_json
from index.errors import DOCTOR, DamagedDocumentError, StoreError
from index.id_set import IdSet
from index.lexical.terms import title_hashes
from index.sqlite.block_vectors import BlockVectors, pack_block_vectors
from index.sqlite.connections import utc_now, vector_id_list
from index.store.checksums import document_checksum, encoding_checksum
from index.store.database import Connection
from index.store.filters import insert_metadata, remove_metadata
from index.store.records import EncodedDocument, StoredDocument

SEQUENCE = """
SELECT sequence FROM meta"""
_receipt_values = attrgetter(*(field.name for field in fields(Receipt)))  # `astuple` is slow
_RECEIPT = "tokens, tokens_read, blocks, blocks_left_out, tokens_encoded, payload_characters"
_DOCUMENTS = f"""
SELECT vector_id, id, text, title, metadata, {_RECEIPT}, indexed_at FROM documents"""  # noqa: S608
# A list of ids is passed as one JSON array: SQLite limits the variables of a statement.
DOCUMENTS_BY_ID = f"{_DOCUMENTS} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
WHOLE = f"{_DOCUMENTS} WHERE id > ? ORDER BY id LIMIT 8"
# What documents are ordered by; `date` is that of the metadata, as text: ISO 8601 sorts.
ORDERS: Mapping[str, str] = {
    "id": "id",
    "title": "title",
    "size": "tokens",
    "date": "coalesce(CAST(metadata ->> '$.date' AS TEXT), '')",
}
_LISTED = """
SELECT {key}, vector_id, id, title, metadata, {receipt}, indexed_at
FROM documents WHERE {conditions} ORDER BY {places} LIMIT ?"""
_AMONG = "vector_id < ? AND {not_}vector_id IN (SELECT value FROM json_each(?))"
METADATA = """
SELECT vector_id, id, metadata FROM documents"""
SUMMARIES = """
SELECT vector_id, id, title, metadata
FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
STATES = """
SELECT id, vector_id, content_hash, checksum
FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
VECTORS = """
SELECT vector_id, vector
FROM vectors WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""

_INSERT_DOCUMENT = f"""
INSERT INTO documents (vector_id, id, content_hash, {_RECEIPT}, indexed_at, title, metadata,
    checksum, text, title_hash, title_head)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""  # noqa: S608
_INSERT_VECTOR = """
INSERT INTO vectors (vector_id, sequence, vector, checksum) VALUES (?, ?, ?, ?)"""
_INSERT_BLOCKS = """
INSERT INTO block_vectors (vector_id, offsets, vectors) VALUES (?, ?, ?)"""
_ADVANCE = """
UPDATE meta SET sequence = sequence + 1 RETURNING sequence"""
_GIVE_VECTOR_IDS = """
UPDATE meta SET last_vector_id = last_vector_id + ? RETURNING last_vector_id"""
_INSERT_REMOVALS = """
INSERT INTO removals (vector_id, sequence)
SELECT vector_id, ? FROM vectors WHERE vector_id IN (SELECT value FROM json_each(?))"""
_REVISE = """
INSERT INTO revisions (vector_id, sequence)
SELECT vector_id, ? FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))
ON CONFLICT (vector_id) DO UPDATE SET sequence = excluded.sequence"""
_DESCRIPTION = f"""
SELECT vector_id, id, content_hash, {_RECEIPT}, indexed_at, title, metadata
FROM documents WHERE vector_id = ?"""  # noqa: S608
_DESCRIBE = """
UPDATE documents SET title = ?, metadata = ?, checksum = ?, title_hash = ?, title_head = ?
WHERE vector_id = ?"""
_DELETE_DOCUMENTS = """
DELETE FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


def listed(
    after: str, key: str | int | None, order: str, among: IdSet | None
) -> tuple[str, list[str | int]]:
    """Return a statement that lists documents after one, and its values but the last, the limit.

    Args:
        after: the id of that one, which need not be stored.
        key: of that one; None for the first page.
        order: one of `ORDERS`, with a minus before it for the last ones first.
        among: these documents alone.
    """
    expression, falls = ORDERS[order.removeprefix("-")], order.startswith("-")
    conditions, values, places = ["id > ?"], list[str | int]([after]), "id"
    if order != "id":
        places = f"{expression} DESC, id DESC" if falls else f"{expression}, id"
        conditions, values = ["true"], []
        if key is not None:
            conditions = [f"({expression}, id) {'<' if falls else '>'} (?, ?)"]
            values = [key, after]
    if among is not None:
        conditions.append(_AMONG.format(not_="NOT " if among.inverted else ""))
        values += [among.end, vector_id_list(among.ids.tolist())]
    condition = " AND ".join(conditions)
    statement = _LISTED.format(
        key=expression, receipt=_RECEIPT, conditions=condition, places=places
    )
    return statement, values


def read_sequence(connection: Connection) -> int:
    """Return how often the store has changed."""
    (sequence,) = connection.execute(SEQUENCE).fetchone()
    return int(sequence)


def advance_sequence(connection: Connection) -> int:
    """Count a change and return the new sequence."""
    ((sequence,),) = connection.execute(_ADVANCE).fetchall()
    return int(sequence)


def next_vector_ids(connection: Connection, count: int) -> list[int]:
    """Give the vector ids of the next documents away."""
    ((last,),) = connection.execute(_GIVE_VECTOR_IDS, (count,)).fetchall()
    return list(range(last + 1 - count, last + 1))


def insert_documents(
    connection: Connection,
    entries: Sequence[EncodedDocument],
    hashes: Mapping[str, bytes],
    vector_ids: Sequence[int],
    sequence: int,
) -> None:
    """Insert new documents, without what is derived from their texts.

    Args:
        connection: inside a transaction.
        entries: the documents.
        hashes: of their texts, by document id.
        vector_ids: of each.
        sequence: at which they are added.
    """
    now = utc_now()
    rows = []
    for entry, vector_id in zip(entries, vector_ids, strict=True):
        document = entry.document
        row = (
            *(vector_id, document.id, hashes[document.id], *_receipt_values(entry.receipt), now),
            *(document.title, metadata_json(document.metadata)),
        )
        checksum = document_checksum(row)
        rows.append((*row, checksum, document.text, *title_hashes(document.title)))
    connection.executemany(_INSERT_DOCUMENT, rows)
    for entry, vector_id in zip(entries, vector_ids, strict=True):
        insert_encoding(connection, vector_id, sequence, entry.vector, entry.blocks)
    insert_metadata(
        connection,
        [(n, entry.document.metadata) for entry, n in zip(entries, vector_ids, strict=True)],
    )


def insert_encoding(
    connection: Connection,
    vector_id: int,
    sequence: int,
    vector: Float32,
    blocks: BlockVectors | None,
) -> None:
    """Insert the vector Float32[dimension] of a document, added at `sequence`, and its blocks."""
    stored = vector.astype("<f4").tobytes()
    packed = (None, None) if blocks is None else pack_block_vectors(blocks)
    checksum = encoding_checksum(vector_id, sequence, stored, *packed)
    connection.execute(_INSERT_VECTOR, (vector_id, sequence, stored, checksum))
    if blocks is not None:
        connection.execute(_INSERT_BLOCKS, (vector_id, *packed))


def update_description(connection: Connection, vector_id: int, document: Document) -> bool:
    """Replace title and metadata of a stored document; return whether they were others."""
    description = document.title, metadata_json(document.metadata)
    row = connection.execute(_DESCRIPTION, (vector_id,)).fetchone()
    if row[-2:] == description:
        return False
    remove_metadata(connection, [vector_id])
    insert_metadata(connection, [(vector_id, document.metadata)])
    checksum = document_checksum((*row[:-2], *description))
    hashes = title_hashes(document.title)
    connection.execute(_DESCRIBE, (*description, checksum, *hashes, vector_id))
    return True


def remove_documents(connection: Connection, vector_ids: Sequence[int], sequence: int) -> None:
    """Delete documents with everything stored about them, and log their removal at `sequence`."""
    if not vector_ids:
        return
    id_list = vector_id_list(vector_ids)
    remove_metadata(connection, vector_ids)
    connection.execute(_INSERT_REMOVALS, (sequence, id_list))
    connection.execute(_DELETE_DOCUMENTS, (id_list,))


def revise(connection: Connection, vector_ids: Sequence[int], sequence: int) -> None:
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


def stored_document(path: object, row: tuple[Any, ...]) -> StoredDocument:
    """Read a row of `DOCUMENTS_BY_ID` of the store at `path`.

    Raises:
        DamagedDocumentError: its metadata is damaged.
    """
    vector_id, document_id, text, title, metadata, *receipt, indexed_at = row
    found = stored_metadata(path, document_id, metadata)
    document = Document.stored(document_id, text, title, found)
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
        StoreError: a vector is damaged: it has another length, or no unit norm.
    """
    ids = np.array([vector_id for vector_id, _ in rows], dtype=np.int64)
    for vector_id, vector in rows:
        if not isinstance(vector, bytes) or len(vector) != dimension * 4:
            raise StoreError(f"{path}: the vector of vector id {vector_id} is damaged; {DOCTOR}")
    data = b"".join(vector for _, vector in rows)
    vectors = np.frombuffer(data, dtype="<f4").reshape(len(rows), dimension)
    if not (unit := _have_unit_norm(vectors)).all():
        vector_id = ids[np.argmin(unit)]
        raise StoreError(f"{path}: the vector of vector id {vector_id} is damaged; {DOCTOR}")
    return ids, vectors.astype(np.float32, copy=False)


def _have_unit_norm(vectors: Float32) -> Bool:
    """Return for each of vectors [N, dimension] whether it has."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    unit: Bool = np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE  # False for NaN, too
    return unit

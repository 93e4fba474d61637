"""The SQL statements of the store; every function runs inside a transaction."""

import json
import sqlite3
from collections.abc import Sequence

from encoder.arrays import Float32
from index.document import Document, metadata_json
from index.lexical.tables import remove_terms
from index.near_duplicates.tables import remove_texts, texts_of_documents
from index.sqlite.connections import vector_id_list
from index.sqlite.task_state import LOG_START, read_count
from index.store.checksums import insert_checksums
from index.store.metadata import insert_metadata, remove_metadata
from index.store.records import DocumentRow

# A list of ids is passed as one JSON array: SQLite limits the variables of a statement. Checksums
# come last, for `index.store.checksums.divided`.
DOCUMENTS_BY_ID = """
SELECT d.vector_id, d.id, d.text, d.title, d.metadata, d.tokens, d.tokens_read, d.blocks,
    d.blocks_left_out, d.tokens_encoded, d.indexed_at, c.summary, c.details, c.vector, c.blocks
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
SELECT vector_id, vector
FROM vectors WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""
CHECKED_VECTORS = """
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
    tokens_encoded, indexed_at, title, metadata, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
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
_DELETE_DOCUMENTS = """
DELETE FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


def read_sequence(connection: sqlite3.Connection) -> int:
    """Return how often the set of vectors has changed."""
    (sequence,) = connection.execute("SELECT sequence FROM meta").fetchone()
    return int(sequence)


def read_log_start(connection: sqlite3.Connection) -> int:
    """Return the sequence since which every removal is logged."""
    return read_count(connection, LOG_START) or 0


def advance_sequence(connection: sqlite3.Connection) -> int:
    """Count a change of the set of vectors and return the new sequence."""
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
                *(one.vector_id, one.document_id, one.content_hash, *one.receipt),
                *(one.indexed_at, one.title, one.metadata, one.text),
            )
            for one in rows
        ],
    )
    connection.executemany(
        _INSERT_VECTOR, [(one.vector_id, one.sequence, one.vector) for one in rows]
    )
    connection.executemany(
        _INSERT_BLOCKS,
        [
            (one.vector_id, one.offsets, one.block_vectors)
            for one in rows
            if one.offsets is not None
        ],
    )
    insert_metadata(connection, [(one.vector_id, json.loads(one.metadata)) for one in rows])
    insert_checksums(connection, [one.checked() for one in rows])


def insert_vector(
    connection: sqlite3.Connection, vector_id: int, sequence: int, vector: Float32
) -> None:
    """Insert the vector Float32[dimension] of a document, added at `sequence`."""
    connection.execute(_INSERT_VECTOR, (vector_id, sequence, vector.astype("<f4").tobytes()))


def update_description(connection: sqlite3.Connection, vector_id: int, document: Document) -> bool:
    """Replace title and metadata of a stored document; return whether the title changed."""
    remove_metadata(connection, [vector_id])
    insert_metadata(connection, [(vector_id, document.metadata)])
    (before,) = connection.execute(
        "SELECT title FROM documents WHERE vector_id = ?", (vector_id,)
    ).fetchone()
    connection.execute(
        "UPDATE documents SET title = ?, metadata = ? WHERE vector_id = ?",
        (document.title, metadata_json(document.metadata), vector_id),
    )
    return bool(before != document.title)


def remove_documents(
    connection: sqlite3.Connection, vector_ids: Sequence[int], sequence: int
) -> None:
    """Delete documents with everything stored about them, and log their removal at `sequence`."""
    if not vector_ids:
        return
    id_list = vector_id_list(vector_ids)
    texts = texts_of_documents(connection, id_list)
    remove_metadata(connection, vector_ids)
    remove_terms(connection, vector_ids)
    connection.execute(_INSERT_REMOVALS, (sequence, id_list))
    connection.execute(_DELETE_DOCUMENTS, (id_list,))
    remove_texts(connection, texts)

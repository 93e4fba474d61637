"""The SQL statements of the store in PostgreSQL; every function runs inside a transaction."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any

from index.document import Document, metadata_json
from index.postgres.connections import Session
from index.sqlite.block_vectors import pack_block_vectors
from index.sqlite.connections import utc_now
from index.store.checksums import Checksums, checksums_of
from index.store.metadata import TEXT, metadata_values
from index.store.records import DocumentRow, EncodedDocument

DOCUMENTS_BY_ID = """
SELECT vector_id, id, text, title, metadata, tokens, tokens_read, d.blocks, blocks_left_out,
    tokens_encoded, indexed_at
FROM {s}.documents d WHERE id = ANY(%s::text[])"""
SUMMARIES = """
SELECT vector_id, id, title, metadata
FROM {s}.documents WHERE vector_id = ANY(%s::bigint[])"""
CONTENT_HASHES = """
SELECT id, vector_id, content_hash
FROM {s}.documents WHERE id = ANY(%s::text[])"""
VECTORS = """
SELECT vector_id, vector
FROM {s}.vectors WHERE vector_id = ANY(%s::bigint[]) ORDER BY vector_id"""
BLOCKS = """
SELECT vector_id, offsets, vectors
FROM {s}.block_vectors WHERE vector_id = ANY(%s::bigint[])"""
_CHECKSUMS = """
SELECT vector_id, summary, details, vector, blocks
FROM {s}.checksums WHERE vector_id = ANY(%s::bigint[])"""
_ROWS = """
SELECT d.vector_id, v.sequence, d.id, d.content_hash, d.title, d.metadata, d.text, d.tokens,
    d.tokens_read, d.blocks, d.blocks_left_out, d.tokens_encoded, d.indexed_at, v.vector,
    b.offsets, b.vectors
FROM {s}.documents d JOIN {s}.vectors v USING (vector_id)
LEFT JOIN {s}.block_vectors b USING (vector_id)"""
_ROWS_OF = f"{_ROWS} WHERE d.vector_id = ANY(%s::bigint[])"
_ROWS_AFTER = f"{_ROWS} WHERE d.vector_id > %s ORDER BY d.vector_id LIMIT %s"

# The row lock makes the writes of all processes one after another: sequences and vector ids are
# committed in their order, without gaps, and who reads one has seen all before it.
_LOCK = """
SELECT sequence, last_vector_id FROM {s}.meta FOR UPDATE"""
_SET_COUNTERS = """
UPDATE {s}.meta SET sequence = %s, last_vector_id = %s"""
_INSERT_DOCUMENT = """
INSERT INTO {s}.documents (vector_id, id, content_hash, tokens, tokens_read, blocks,
    blocks_left_out, tokens_encoded, indexed_at, title, metadata, revision, text)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""
_INSERT_VECTOR = """
INSERT INTO {s}.vectors (vector_id, sequence, vector) VALUES (%s, %s, %s)"""
_INSERT_BLOCKS = """
INSERT INTO {s}.block_vectors (vector_id, offsets, vectors) VALUES (%s, %s, %s)"""
_INSERT_VALUE = """
INSERT INTO {s}.metadata_values (vector_id, field, kind, number, text)
VALUES (%s, %s, %s, %s, %s)"""
_WRITE_CHECKSUMS = """
INSERT INTO {s}.checksums (vector_id, summary, details, vector, blocks)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (vector_id) DO UPDATE SET summary = EXCLUDED.summary, details = EXCLUDED.details,
    vector = EXCLUDED.vector, blocks = EXCLUDED.blocks"""
_INSERT_REMOVALS = """
INSERT INTO {s}.removals (vector_id, added, sequence)
SELECT vector_id, sequence, %s FROM {s}.vectors WHERE vector_id = ANY(%s::bigint[])"""
_DELETE_DOCUMENTS = """
DELETE FROM {s}.documents WHERE vector_id = ANY(%s::bigint[])"""
_DELETE_VALUES = """
DELETE FROM {s}.metadata_values WHERE vector_id = ANY(%s::bigint[])"""
_DESCRIBE = """
UPDATE {s}.documents SET title = %s, metadata = %s, revision = %s WHERE vector_id = %s"""

# No stored id contains these, and PostgreSQL's text cannot hold them.
_NEVER_IN_AN_ID = re.compile("[\x00\ud800-\udfff]")


def possible_ids(document_ids: Iterable[str]) -> list[str]:
    """Return those of these ids that a document can have."""
    return [one for one in document_ids if not _NEVER_IN_AN_ID.search(one)]


def read_sequence(session: Session) -> int:
    """Return how often the set of vectors has changed."""
    return int(session.value("SELECT sequence FROM {s}.meta"))


def lock_counters(session: Session) -> tuple[int, int]:
    """Return the sequence and the last vector id; other writes wait for this transaction."""
    ((sequence, last),) = session.rows(_LOCK)
    return int(sequence), int(last)


def set_counters(session: Session, sequence: int, last_vector_id: int) -> None:
    """Write the counters that `lock_counters` returned, counted on."""
    session.run(_SET_COUNTERS, sequence, last_vector_id)


def row_of(entry: EncodedDocument, vector_id: int, sequence: int) -> DocumentRow:
    """Return the row of a new document."""
    document = entry.document
    packed = (None, None) if entry.blocks is None else pack_block_vectors(entry.blocks)
    receipt = entry.receipt
    return DocumentRow(
        *(vector_id, sequence, document.id, document.content_hash, document.title),
        *(metadata_json(document.metadata), document.text),
        (
            *(receipt.tokens, receipt.tokens_read, receipt.blocks, receipt.blocks_left_out),
            receipt.tokens_encoded,
        ),
        utc_now(),
        entry.vector.astype("<f4").tobytes(),
        *packed,
    )


def insert_rows(
    session: Session,
    rows: Sequence[DocumentRow],
    metadata: Mapping[int, Mapping[str, Any]],
    revision: int,
) -> None:
    """Insert new documents with everything that is stored about them; metadata by vector id."""
    session.insert(
        _INSERT_DOCUMENT,
        [
            (
                *(one.vector_id, one.document_id, one.content_hash, *one.receipt, one.indexed_at),
                *(one.title.encode(), one.metadata, revision, one.text.encode()),
            )
            for one in rows
        ],
    )
    session.insert(_INSERT_VECTOR, [(one.vector_id, one.sequence, one.vector) for one in rows])
    blocks = [
        (one.vector_id, one.offsets, one.block_vectors) for one in rows if one.offsets is not None
    ]
    session.insert(_INSERT_BLOCKS, blocks)
    _insert_values(session, metadata)
    checksums = [(one.vector_id, *checksums_of(one.checked())) for one in rows]
    session.insert(_WRITE_CHECKSUMS, checksums)


def field_key(field: str) -> bytes:
    """Return what a field is called in the table of values."""
    return sha256(field.encode("utf-8", "surrogatepass")).digest()


def number_value(value: str | int | float) -> Decimal:
    """Return a number, exactly."""
    return Decimal(value)


def text_value(value: str | int | float) -> bytes:
    """Return a text as bytes in the order of its code points."""
    return str(value).encode("utf-8", "surrogatepass")


def describe(session: Session, documents: Mapping[int, Document], revision: int) -> None:
    """Replace title and metadata of stored documents, by vector id."""
    ids = list(documents)
    session.run(_DELETE_VALUES, ids)
    _insert_values(session, {n: one.metadata for n, one in documents.items()})
    for vector_id, one in documents.items():
        metadata = metadata_json(one.metadata)
        session.run(_DESCRIBE, one.title.encode(), metadata, revision, vector_id)
    rows = [document_row(one) for one in session.rows(_ROWS_OF, ids)]
    checksums = [(one.vector_id, *checksums_of(one.checked())) for one in rows]
    session.insert(_WRITE_CHECKSUMS, checksums)


def remove_documents(session: Session, vector_ids: Sequence[int], sequence: int) -> None:
    """Delete documents with everything stored about them, and log their removal at `sequence`."""
    if vector_ids:
        session.run(_INSERT_REMOVALS, sequence, list(vector_ids))
        session.run(_DELETE_DOCUMENTS, list(vector_ids))


def read_checksums(session: Session, vector_ids: Iterable[int]) -> dict[int, Checksums]:
    """Return the checksums of these documents; those without are absent."""
    rows = session.rows(_CHECKSUMS, list(vector_ids))
    return {vector_id: Checksums(*values) for vector_id, *values in rows}


def rows_after(session: Session, vector_id: int, limit: int) -> list[DocumentRow]:
    """Return the first documents after a vector id, ascending, whole."""
    return [document_row(one) for one in session.rows(_ROWS_AFTER, vector_id, limit)]


def document_row(row: Sequence[Any]) -> DocumentRow:
    """Return a row of documents, vectors and block vectors as a record."""
    vector_id, sequence, document_id, content_hash, title, metadata, text, *rest = row
    return DocumentRow(
        *(vector_id, sequence, document_id, bytes(content_hash), as_text(title), metadata),
        as_text(text),
        tuple(rest[:5]),
        rest[5],
        *rest[6:],
    )


def as_text(stored: bytes) -> str:
    """Return a title or a text; what is no UTF-8 any more is not lost on a checksum."""
    return stored.decode("utf-8", "replace")


def _insert_values(session: Session, metadata: Mapping[int, Mapping[str, Any]]) -> None:
    """Insert the values of the metadata of documents, by vector id, that filters can use."""
    rows = [
        _value_row(vector_id, *one)
        for vector_id, values in metadata.items()
        for one in metadata_values(values)
    ]
    session.insert(_INSERT_VALUE, rows)


def _value_row(
    vector_id: int, field: str, kind: int, value: str | int | float
) -> tuple[int, bytes, int, Decimal | None, bytes | None]:
    if kind == TEXT:
        return vector_id, field_key(field), kind, None, text_value(value)
    return vector_id, field_key(field), kind, number_value(value), None

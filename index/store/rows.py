"""Rows of the store's tables as records, and documents that are put as rows, with their checks."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from encoder.arrays import Bool, Float32, Int64, UInt32
from encoder.blocks import Receipt
from index.document import Document, metadata_json
from index.errors import DamagedDocumentError, DocumentError, StoreError
from index.near_duplicates.signatures import sign
from index.near_duplicates.tables import SignedText
from index.sqlite.block_vectors import pack_block_vectors
from index.sqlite.connections import utc_now
from index.store.records import DocumentRow, EncodedDocument, StoredDocument

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


def signed_texts(
    rows: Sequence[DocumentRow], signatures: Mapping[bytes, UInt32]
) -> list[SignedText]:
    """Return the signed text of each; those are signed now that have no signature yet."""
    known = ((one, signatures.get(one.content_hash)) for one in rows)
    return [
        SignedText(
            *(one.vector_id, one.content_hash),
            sign(one.text) if signature is None else signature,
        )
        for one, signature in known
    ]


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
        (
            *(receipt.tokens, receipt.tokens_read, receipt.blocks),
            *(receipt.blocks_left_out, receipt.tokens_encoded),
        ),
        *(indexed_at, entry.vector.astype("<f4").tobytes(), *packed),
    )


def _have_unit_norm(vectors: Float32) -> Bool:
    """Return for each of vectors [N, dimension] whether it has."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    unit: Bool = np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE  # False for NaN, too
    return unit

"""Rows of the store's tables as records, and the checks of what becomes rows."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.blocks import Receipt
from index.document import Document
from index.errors import DamagedDocumentError, DocumentError, StoreError
from index.store.records import EncodedDocument, StoredDocument

UNIT_NORM_TOLERANCE = 1e-3


def check_entries(entries: Sequence[EncodedDocument], dimension: int) -> None:
    """Check documents that are to be stored.

    Raises:
        ValueError: an id twice, or a vector that is not Float32[dimension] of unit norm.
    """
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
        if not _unit_norm(entry.vector):
            raise ValueError(f"{name}: its vector has no unit norm")


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
    if not _unit_norm(vectors):
        raise StoreError(f"{path}: a vector is damaged: it has no unit norm")
    ids = np.array([vector_id for vector_id, _ in rows], dtype=np.int64)
    return ids, vectors.astype(np.float32, copy=False)


def _unit_norm(vectors: Float32) -> bool:
    norms = np.linalg.norm(vectors, axis=-1)
    return bool(np.all(np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE))  # False for NaN, too

"""Rows of the store's tables as records."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from encoder.blocks import Receipt
from index.document import Document
from index.errors import DamagedDocumentError, DocumentError, StoreError
from index.store.records import StoredDocument

UNIT_NORM_TOLERANCE = 1e-3


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
    if not have_unit_norm(vectors).all():
        raise StoreError(f"{path}: a vector is damaged: it has no unit norm")
    ids = np.array([vector_id for vector_id, _ in rows], dtype=np.int64)
    return ids, vectors.astype(np.float32, copy=False)


def have_unit_norm(vectors: Float32) -> Bool:
    """Return for each of vectors [N, dimension] whether it has."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    unit: Bool = np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE  # False for NaN, too
    return unit

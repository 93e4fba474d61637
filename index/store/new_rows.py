"""Documents that are put, as rows of the store's tables, and their checks."""

from collections.abc import Mapping, Sequence

import numpy as np

from encoder.arrays import UInt32
from index.document import metadata_json
from index.near_duplicates.signatures import sign
from index.sqlite.block_vectors import pack_block_vectors
from index.sqlite.connections import utc_now
from index.store.records import DocumentRow, EncodedDocument
from index.store.rows import have_unit_norm


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
    unit = have_unit_norm(np.stack([entry.vector for entry in entries]))
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


def signed_texts(
    rows: Sequence[DocumentRow], signatures: Mapping[bytes, UInt32]
) -> list[tuple[bytes, UInt32]]:
    """Return hash and signature of each text; those are signed now that have no signature yet."""
    known = ((one, signatures.get(one.content_hash)) for one in rows)
    return [
        (one.content_hash, sign(one.text) if signature is None else signature)
        for one, signature in known
    ]


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

"""Statements that repair a store; each function works on a connection inside a transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import sha256

from encoder.blocks import SentenceBlocks
from encoder.onnx_encoder import EncodedDocuments
from index.sqlite_blocks import block_vectors_of, insert_block_vectors
from index.sqlite_checksums import write_checksums
from index.sqlite_statements import advance_sequence, insert_vector, vector_id_list

_TEXTS = """
SELECT vector_id, content_hash, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?))"""


def texts_of(connection: sqlite3.Connection, vector_ids: Sequence[int]) -> dict[int, str]:
    """Return those of these texts that are what was once stored, by vector id."""
    rows = connection.execute(_TEXTS, (vector_id_list(vector_ids),))
    return {
        vector_id: text
        for vector_id, content_hash, text in rows
        if sha256(text.encode()).digest() == content_hash
    }


def replace_vectors(
    connection: sqlite3.Connection,
    blocks: Mapping[int, SentenceBlocks],
    encoded: EncodedDocuments,
) -> None:
    """Put new vectors, and new block vectors, in the place of those of these vector ids.

    The index must be built again afterwards: it holds the former ones under the same ids.
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

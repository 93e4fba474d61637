"""The aligned blocks of documents, in a file that follows the store.

documents        which documents have block vectors
aligned_blocks   their blocks in a space, from which they are aligned; those of common text match
                 nothing
"""

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from index.common_text.collection import read_common_blocks, without_common
from index.errors import DOCTOR
from index.sqlite.block_vectors import read_block_vectors
from index.sqlite.connections import DatabaseFormat, vector_id_list

BLOCKS = DatabaseFormat(
    "aligned blocks",
    application_id=0x4C4D424C,
    version=1,
    schema="""
CREATE TABLE documents (vector_id INTEGER PRIMARY KEY);
CREATE TABLE aligned_blocks (
    vector_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    space_id INTEGER NOT NULL,
    content BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (vector_id, space_id)
);
""",
)

_WITH_BLOCKS = """
SELECT b.vector_id, b.offsets, b.vectors, m.blocks
FROM block_vectors b LEFT JOIN common_marks m USING (vector_id)
WHERE b.vector_id IN (SELECT value FROM json_each(?))"""
_INSERT_DOCUMENT = """
INSERT INTO documents (vector_id) VALUES (?)"""
_REMOVE_DOCUMENTS = """
DELETE FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_INSERT_BLOCKS = """
INSERT OR REPLACE INTO aligned_blocks (vector_id, space_id, content, checksum)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM documents WHERE vector_id = ?1)"""
_BLOCKS = """
SELECT vector_id, content, checksum FROM aligned_blocks
WHERE vector_id IN (SELECT value FROM json_each(?)) AND space_id = ?"""
_HELD = """
SELECT vector_id FROM aligned_blocks
WHERE vector_id IN (SELECT value FROM json_each(?)) AND space_id = ?"""
_ALL = """
SELECT vector_id, content, checksum FROM aligned_blocks"""
_SCALE = np.dtype("<f4")

_log = logging.getLogger(__name__)


def add_documents(
    connection: sqlite3.Connection, vector_ids: Sequence[int], with_blocks: Sequence[int]
) -> Sequence[int]:
    """Add those of these documents that have block vectors; known ones are projected again."""
    remove_documents(connection, vector_ids)
    connection.executemany(_INSERT_DOCUMENT, [(vector_id,) for vector_id in with_blocks])
    return with_blocks


def remove_documents(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    """Remove documents and their blocks in all spaces."""
    connection.execute(_REMOVE_DOCUMENTS, (vector_id_list(vector_ids),))


def project_documents(
    store: sqlite3.Connection, space: AlignmentSpace, vector_ids: Iterable[int]
) -> Iterator[tuple[int, AlignedBlocks]]:
    """Project the stored block vectors of documents into a space; damaged ones are left out."""
    for vector_id, *row, common in store.execute(_WITH_BLOCKS, (vector_id_list(vector_ids),)):
        try:
            aligned = space.project(read_block_vectors([(vector_id, *row)])[vector_id].vectors)
        except (TypeError, ValueError) as error:
            _log.error("document of vector id %d: %s: %s --repair", vector_id, error, DOCTOR)
        else:
            yield vector_id, without_common(aligned, read_common_blocks(common, len(aligned)))


def insert_aligned_blocks(
    connection: sqlite3.Connection, space_id: int, blocks: Iterable[tuple[int, AlignedBlocks]]
) -> None:
    """Insert the blocks of documents with their vector ids; those of removed ones are left out."""
    for vector_id, aligned in blocks:
        content = _pack(aligned)
        values = (vector_id, space_id, content, _checksum(content, vector_id))
        connection.execute(_INSERT_BLOCKS, values)


def read_aligned_blocks(
    connection: sqlite3.Connection, space_id: int, dimension: int, vector_ids: Iterable[int]
) -> tuple[dict[int, AlignedBlocks], tuple[int, ...]]:
    """Return the blocks of documents in a space by vector id, and the ids of damaged rows."""
    found, damaged = {}, []
    for vector_id, content, checksum in connection.execute(
        _BLOCKS, (vector_id_list(vector_ids), space_id)
    ):
        sound = isinstance(content, bytes) and _checksum(content, vector_id) == checksum
        rows, rest = divmod(len(content), dimension + 2 * _SCALE.itemsize) if sound else (0, 0)
        if rows and not rest:
            found[vector_id] = _unpack(content, rows, dimension)
        else:
            damaged.append(vector_id)
    return found, tuple(damaged)


def damaged_blocks(connection: sqlite3.Connection) -> list[int]:
    """Return the vector ids of the rows that differ from their checksums."""
    return [
        vector_id
        for vector_id, content, checksum in connection.execute(_ALL)
        if not isinstance(content, bytes) or _checksum(content, vector_id) != checksum
    ]


def without_blocks(
    connection: sqlite3.Connection, space_id: int, vector_ids: Sequence[int]
) -> list[int]:
    """Return those of these documents that have no blocks in a space."""
    rows = connection.execute(_HELD, (vector_id_list(vector_ids), space_id))
    held = {row[0] for row in rows}
    return [vector_id for vector_id in vector_ids if vector_id not in held]


def _checksum(content: bytes, vector_id: int) -> int:
    return crc32(content, vector_id & 0xFFFFFFFF)


def _pack(blocks: AlignedBlocks) -> bytes:
    arrays = (blocks.codes, blocks.scales.astype(_SCALE), blocks.hubness.astype(_SCALE))
    return b"".join(array.tobytes() for array in arrays)


def _unpack(content: bytes, rows: int, dimension: int) -> AlignedBlocks:
    codes = np.frombuffer(content, np.int8, rows * dimension).reshape(rows, dimension)
    numbers = np.frombuffer(content, _SCALE, offset=rows * dimension)
    return AlignedBlocks(codes, numbers[:rows], numbers[rows:])

"""The tables of the alignment index; each function works inside a transaction.

alignment_spaces   the current space, and the next one while documents are projected into it
documents          which documents have block vectors
aligned_blocks     the blocks of a document in a space, from which it is aligned

Spaces are in the store: what a space was fitted to is not there any more. The others are in a file
that follows it. Blocks of common text match nothing.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from encoder.alignment.space import AlignedBlocks, AlignmentSpace, read_space, write_space
from index.common_text.collection import read_common_blocks, without_common
from index.sqlite.block_vectors import read_block_vectors
from index.sqlite.connections import DatabaseFormat, vector_id_list

SPACES_SCHEMA = """
CREATE TABLE alignment_spaces (
    space_id INTEGER PRIMARY KEY AUTOINCREMENT,
    current INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    content BLOB NOT NULL,
    checksum INTEGER NOT NULL
)"""
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

_SPACE = """
SELECT space_id, documents, sequence FROM alignment_spaces
WHERE current = ? ORDER BY space_id DESC LIMIT 1"""
_CONTENT = """
SELECT content, checksum FROM alignment_spaces WHERE space_id = ?"""
_INSERT_SPACE = """
INSERT INTO alignment_spaces (current, documents, sequence, content, checksum)
VALUES (?, ?, ?, ?, ?)"""
_MAKE_CURRENT = """
UPDATE alignment_spaces SET current = (space_id = ?)"""
_DROP_SPACES = """
DELETE FROM alignment_spaces WHERE NOT current"""
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
_PENDING = """
SELECT vector_id FROM documents d WHERE vector_id > ?1 AND NOT EXISTS (
    SELECT 1 FROM aligned_blocks a WHERE a.vector_id = d.vector_id AND a.space_id = ?2
) ORDER BY vector_id LIMIT ?3"""
_NUMBER_PENDING = """
SELECT count(*) FROM documents d WHERE NOT EXISTS (
    SELECT 1 FROM aligned_blocks a WHERE a.vector_id = d.vector_id AND a.space_id = ?
)"""
_DELETE_OTHERS = """
DELETE FROM aligned_blocks WHERE rowid IN (
    SELECT rowid FROM aligned_blocks WHERE space_id != ? LIMIT ?
)"""
_ALL = """
SELECT vector_id, content, checksum FROM aligned_blocks"""
_SCALE = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """A stored space.

    Attributes:
        space_id: its number.
        documents: how many documents the store had when it was fitted; 0 if it was not fitted to
            them.
        sequence: of the store at that time.
    """

    space_id: int
    documents: int
    sequence: int


@dataclass(frozen=True, slots=True)
class FittedSpace:
    """A space with what it was fitted to.

    Attributes:
        space: itself.
        documents: as in `SpaceRow`.
        sequence: as in `SpaceRow`.
    """

    space: AlignmentSpace
    documents: int = 0
    sequence: int = 0


def find_space(connection: sqlite3.Connection, *, current: bool = True) -> SpaceRow | None:
    """Return the current space, or the one that is to follow it; None if there is none."""
    row = connection.execute(_SPACE, (int(current),)).fetchone()
    return None if row is None else SpaceRow(*row)


def insert_space(connection: sqlite3.Connection, fitted: FittedSpace, *, current: bool) -> int:
    """Insert a space and return its number."""
    content = write_space(fitted.space)
    values = (int(current), fitted.documents, fitted.sequence, content, crc32(content))
    return int(connection.execute(_INSERT_SPACE, values).lastrowid or 0)


def load_space(connection: sqlite3.Connection, space_id: int) -> AlignmentSpace:
    """Read a space.

    Raises:
        ValueError: it is missing or damaged.
    """
    row = connection.execute(_CONTENT, (space_id,)).fetchone()
    if row is None or not isinstance(row[0], bytes) or crc32(row[0]) != row[1]:
        raise ValueError(f"alignment space {space_id} is missing or damaged")
    return read_space(row[0])


def make_current(connection: sqlite3.Connection, space_id: int) -> None:
    """Let searches use this space; the former one remains until its blocks are deleted."""
    connection.execute(_MAKE_CURRENT, (space_id,))


def drop_other_spaces(connection: sqlite3.Connection) -> None:
    """Delete the spaces that are not current."""
    connection.execute(_DROP_SPACES)


def delete_other_blocks(connection: sqlite3.Connection, space_id: int, limit: int) -> int:
    """Delete up to `limit` rows of other spaces; return how many there were."""
    return connection.execute(_DELETE_OTHERS, (space_id, limit)).rowcount


def add_documents(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    """Add documents that have block vectors; known ones are projected again."""
    vector_ids = list(vector_ids)
    remove_documents(connection, vector_ids)
    connection.executemany(_INSERT_DOCUMENT, [(vector_id,) for vector_id in vector_ids])


def remove_documents(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    """Remove documents and their blocks in all spaces."""
    connection.execute(_REMOVE_DOCUMENTS, (vector_id_list(vector_ids),))


def project_documents(
    store: sqlite3.Connection, space: AlignmentSpace, vector_ids: Iterable[int]
) -> dict[int, AlignedBlocks]:
    """Project the stored block vectors of documents, without common text, into a space.

    Raises:
        ValueError: a row is damaged.
    """
    rows = store.execute(_WITH_BLOCKS, (vector_id_list(vector_ids),)).fetchall()
    vectors = read_block_vectors([row[:-1] for row in rows])
    found = {}
    for vector_id, *_, common in rows:
        aligned = space.project(vectors[vector_id].vectors)
        found[vector_id] = without_common(aligned, read_common_blocks(common, len(aligned)))
    return found


def insert_aligned_blocks(
    connection: sqlite3.Connection, space_id: int, blocks: Mapping[int, AlignedBlocks]
) -> None:
    """Insert the blocks of documents, by vector id; those of removed ones are left out."""
    for vector_id, aligned in blocks.items():
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


def next_pending(
    connection: sqlite3.Connection, space_id: int, last: int, limit: int
) -> Sequence[int]:
    """Return vector ids above `last` whose block vectors are not yet in a space, ascending."""
    rows = connection.execute(_PENDING, (last, space_id, limit))
    return [row[0] for row in rows]


def count_pending(connection: sqlite3.Connection, space_id: int) -> int:
    """Count the documents whose block vectors are not yet in a space."""
    return int(connection.execute(_NUMBER_PENDING, (space_id,)).fetchone()[0])


def _checksum(content: bytes, vector_id: int) -> int:
    return crc32(content, vector_id & 0xFFFFFFFF)


def _pack(blocks: AlignedBlocks) -> bytes:
    arrays = (blocks.codes, blocks.scales.astype(_SCALE), blocks.hubness.astype(_SCALE))
    return b"".join(array.tobytes() for array in arrays)


def _unpack(content: bytes, rows: int, dimension: int) -> AlignedBlocks:
    codes = np.frombuffer(content, np.int8, rows * dimension).reshape(rows, dimension)
    numbers = np.frombuffer(content, _SCALE, offset=rows * dimension)
    return AlignedBlocks(codes, numbers[:rows], numbers[rows:])

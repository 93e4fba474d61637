"""Block vectors in the store, which explain a match without encoding the document again.

A table holds nothing else, so that an ordinary match reads no page of them. A vector is stored as
codes of one byte a number. Its scale is not stored: that which gives it unit norm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np

from encoder.alignment.space import quantise
from encoder.arrays import Float32, Int64
from encoder.blocks import SentenceBlocks

BLOCKS_SCHEMA = """
CREATE TABLE block_vectors (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    offsets BLOB NOT NULL,
    vectors BLOB NOT NULL
)"""
BLOCKS_BY_VECTOR_ID = """
SELECT vector_id, offsets, vectors
FROM block_vectors WHERE vector_id IN (SELECT value FROM json_each(?))"""
_LARGEST_CODE = 127  # of every vector


@dataclass(frozen=True, slots=True, eq=False)
class BlockVectors:
    """The sentence blocks of one document.

    Attributes:
        offsets: Int64[S, 2], first character and the character after the last of each block.
        vectors: Float32[S, H], unit norm.
    """

    offsets: Int64
    vectors: Float32


def block_vectors_of(blocks: SentenceBlocks, vectors: Float32) -> BlockVectors:
    """Combine the character offsets of sentence blocks with their vectors [S, H]."""
    return BlockVectors(np.array(blocks.offsets, dtype=np.int64).reshape(-1, 2), vectors)


def as_stored(vectors: Float32) -> Float32:
    """Return block vectors [S, H] as the store will give them; those that it gave do not change."""
    codes, scales = quantise(vectors)
    return codes * scales[:, None]


def pack_block_vectors(blocks: BlockVectors) -> tuple[bytes, bytes]:
    """Return the offsets and the vectors of blocks as a row holds them."""
    return blocks.offsets.astype("<i4").tobytes(), quantise(blocks.vectors)[0].tobytes()


def read_block_vectors(rows: Sequence[tuple[Any, ...]]) -> dict[int, BlockVectors]:
    """Read rows of `BLOCKS_BY_VECTOR_ID`: vector id -> block vectors.

    Raises:
        ValueError: a row is damaged.
    """
    return dict(starmap(_read_row, rows))


def _read_row(vector_id: int, offsets: bytes, vectors: bytes) -> tuple[int, BlockVectors]:
    places = np.frombuffer(offsets, dtype="<i4").reshape(-1, 2).astype(np.int64)
    codes = np.frombuffer(vectors, dtype=np.int8).reshape(len(places), -1)
    if not codes.size or not bool(np.all(np.abs(codes).max(axis=1) == _LARGEST_CODE)):
        raise ValueError(f"the block vectors of vector id {vector_id} have another scale")
    return vector_id, BlockVectors(places, as_stored(codes.astype(np.float32)))

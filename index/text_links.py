"""Which stored texts are near-duplicates of a new one: found by bands, confirmed by block vectors.

Two texts are near-duplicates when more than half of the sentence blocks of the longer one are found
in the shorter one. So a copy with a part added is one, and so is a document among several that were
put together if it is most of them; but no text is a near-duplicate of two that have nothing in
common, and brings them into one family.

What is looked at is bounded, for a corpus full of forms: `_FROM_BAND` texts of each band, of those
`_COMPARED` by signature, of those `_CONFIRMED` by block vectors.
"""

import sqlite3
from collections import Counter

from index.near_copies import UInt32, band_keys, resemblances, unpack
from index.sqlite_blocks import read_block_vectors
from index.vector_index import Float32

LEAST_SHARE = 0.5  # of the blocks of the longer text; more than that
LEAST_COSINE = 0.75  # of a block and the one that it is found as
_LEAST_RESEMBLANCE = 0.2  # of copies with a fifth of the words changed it is 0.33
_WITHOUT_BLOCKS = 0.5  # resemblance that is enough where block vectors are missing
_FROM_BAND = 256
_COMPARED = 64
_CONFIRMED = 16

_TEXTS_OF_BAND = """
SELECT text_id FROM text_bands WHERE band = ? ORDER BY text_id LIMIT ?"""
_SIGNATURE = """
SELECT signature, content_hash FROM texts WHERE text_id = ?"""
_BLOCKS_OF_CONTENT = """
SELECT vector_id, offsets, vectors FROM documents JOIN block_vectors USING (vector_id)
WHERE content_hash = ? ORDER BY vector_id LIMIT 1"""


def confirmed_links(
    connection: sqlite3.Connection, content_hash: bytes, signature: UInt32
) -> list[int]:
    """Return the ids of the texts that are near-duplicates of a text.

    Args:
        connection: inside a transaction.
        content_hash: of a stored document of this text, whose block vectors are read.
        signature: of the text; an empty one has no near-duplicates.
    """
    candidates = _candidates(connection, signature)
    if not candidates:
        return []
    blocks = _blocks(connection, content_hash)
    return sorted(
        text_id
        for text_id, resemblance, other in candidates
        if _confirms(resemblance, blocks, _blocks(connection, other))
    )


def shared_share(one: Float32, other: Float32) -> float:
    """Return the share of the blocks of the longer text that are found in the shorter one.

    Args:
        one: [S, H] block vectors, unit norm.
        other: [T, H] of the other text.
    """
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    nearest = (longer @ shorter.T).max(axis=1)
    return float((nearest >= LEAST_COSINE).mean())


def _confirms(resemblance: float, blocks: Float32 | None, others: Float32 | None) -> bool:
    if blocks is None or others is None:
        return resemblance >= _WITHOUT_BLOCKS
    return shared_share(blocks, others) > LEAST_SHARE


def _candidates(
    connection: sqlite3.Connection, signature: UInt32
) -> list[tuple[int, float, bytes]]:
    """Return id, estimated resemblance and content hash of the texts to look at, best first."""
    shared = Counter[int]()
    for key in band_keys(signature):
        shared.update(row[0] for row in connection.execute(_TEXTS_OF_BAND, (key, _FROM_BAND)))
    first = sorted(shared, key=lambda one: (-shared[one], one))[:_COMPARED]
    if not first:
        return []
    rows = [connection.execute(_SIGNATURE, (one,)).fetchone() for one in first]
    estimated = resemblances(signature, [unpack(row[0]) for row in rows]).tolist()
    found = [
        (text_id, resemblance, row[1])
        for text_id, resemblance, row in zip(first, estimated, rows, strict=True)
        if resemblance >= _LEAST_RESEMBLANCE
    ]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:_CONFIRMED]


def _blocks(connection: sqlite3.Connection, content_hash: bytes) -> Float32 | None:
    """Return the block vectors of a text; None where none are stored, or they are damaged."""
    rows = connection.execute(_BLOCKS_OF_CONTENT, (content_hash,)).fetchall()
    try:
        found = list(read_block_vectors(rows).values())
    except (TypeError, ValueError):
        return None
    return found[0].vectors if found else None

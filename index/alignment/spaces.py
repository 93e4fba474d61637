"""The alignment spaces of a store: the current one, and the next while documents are projected.

They are kept in the store: what a space was fitted to is not there any more, so none could be made
again that is the same. The former one is kept, too: an engine may still hold vectors in it.
"""

from zlib import crc32

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    SAMPLE_DOCUMENTS,
    AlignmentSpace,
    at_equal_distances,
    fit_to_blocks,
    read_space,
    write_space,
)
from index.progress import Progress
from index.sqlite.block_vectors import BLOCKS_BY_VECTOR_ID, read_block_vectors
from index.sqlite.connections import vector_id_list
from index.store.database import Connection
from index.store.rows import read_sequence

REFIT_DRIFT = 0.5
# `current` is 1 of the current space, 0 of the next one, and -1 of the former one.
SPACES_SCHEMA = """
CREATE TABLE alignment_spaces (
    space_id INTEGER PRIMARY KEY AUTOINCREMENT,
    current INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    content BLOB NOT NULL,
    checksum INTEGER NOT NULL
)"""
_SPACE = """
SELECT max(space_id) FROM alignment_spaces WHERE current = ?"""
_CONTENT = """
SELECT content, checksum FROM alignment_spaces WHERE space_id = ?"""
_INSERT = """
INSERT INTO alignment_spaces (current, documents, sequence, content, checksum)
VALUES (?, ?, ?, ?, ?)"""
_WITH_BLOCKS = """
SELECT vector_id FROM block_vectors ORDER BY vector_id"""
_NUMBER = """
SELECT count(*) FROM documents"""


def find_space(store: Connection, *, current: bool = True) -> int | None:
    """Return the number of the current space, or of the next one; None if there is none."""
    (number,) = store.execute(_SPACE, (int(current),)).fetchone()
    return None if number is None else int(number)


def insert_space(store: Connection, space: AlignmentSpace, *, fitted: bool) -> None:
    """Insert a space: the next one if it was fitted to the documents, else the current one."""
    (documents,) = store.execute(_NUMBER).fetchone() if fitted else (0,)
    content = write_space(space)
    values = (int(not fitted), documents, read_sequence(store), content, crc32(content))
    store.execute(_INSERT, values)


def load_space(store: Connection, space_id: int) -> AlignmentSpace:
    """Read a space.

    Raises:
        ValueError: it is missing or damaged.
    """
    row = store.execute(_CONTENT, (space_id,)).fetchone()
    if row is None or not isinstance(row[0], bytes) or crc32(row[0]) != row[1]:
        raise ValueError(f"alignment space {space_id} is missing or damaged")
    return read_space(row[0])


def fit_to_documents(
    store: Connection, progress: Progress, *, whitens: bool
) -> AlignmentSpace | None:
    """Fit a space to documents at equal distances; None of a collection that is too small.

    Args:
        store: that has them.
        progress: of reading the blocks.
        whitens: as of `fit_to_blocks`.

    Raises:
        ValueError: block vectors are damaged.
    """
    ids = [row[0] for row in store.execute(_WITH_BLOCKS)]
    if len(ids) < MIN_DOCUMENTS:
        return None
    progress.started("fitting the alignment to the corpus", None)
    chosen = vector_id_list(
        ids[row] for row in at_equal_distances(len(ids), SAMPLE_DOCUMENTS).tolist()
    )
    stored = read_block_vectors(store.execute(BLOCKS_BY_VECTOR_ID, (chosen,)).fetchall())
    blocks = [of_document.vectors for _, of_document in sorted(stored.items())]
    return fit_to_blocks(blocks, whitens=whitens)

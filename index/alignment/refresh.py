"""Fit an alignment space to the collection, when that has changed a lot since the last one."""

import sqlite3

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    MIN_SAMPLE,
    fit_space,
    sample_blocks,
    sample_documents,
)
from encoder.arrays import Float32
from index.alignment.tables import FittedSpace
from index.progress import Progress
from index.sqlite.block_vectors import BLOCKS_BY_VECTOR_ID, read_block_vectors
from index.sqlite.connections import SQLiteConnections, vector_id_list

REFIT_DRIFT = 0.5
_WITH_BLOCKS = """
SELECT vector_id FROM block_vectors ORDER BY vector_id"""


def fit_to_documents(connections: SQLiteConnections, progress: Progress) -> FittedSpace | None:
    """Fit a space to a sample of the collection; None if it is too small."""
    with connections.reading() as connection:
        ids = [row[0] for row in connection.execute(_WITH_BLOCKS)]
        (sequence,) = connection.execute("SELECT sequence FROM meta").fetchone()
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        if len(ids) < MIN_DOCUMENTS:
            return None
        progress.started("fitting the alignment to the corpus", None)
        sample = _sample(connection, ids)
    if len(sample) < MIN_SAMPLE:
        return None
    return FittedSpace(fit_space(sample), documents, sequence)


def _sample(connection: sqlite3.Connection, ids: list[int]) -> Float32:
    """Return block vectors of documents at equal distances."""
    chosen = [ids[row] for row in sample_documents(len(ids)).tolist()]
    rows = connection.execute(BLOCKS_BY_VECTOR_ID, (vector_id_list(chosen),)).fetchall()
    return sample_blocks([blocks.vectors for _, blocks in sorted(read_block_vectors(rows).items())])

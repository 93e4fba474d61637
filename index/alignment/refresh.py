"""Fit the alignment space to the collection, and project the stored block vectors into it.

A new space is fitted when the collection has changed a lot since the last one. Its number is stored
first, then every document is projected into it next to the former rows, and only then is it used:
searches never wait, and a pass that was killed goes on where it was.
"""

import sqlite3
from collections.abc import Callable

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    MIN_SAMPLE,
    AlignmentSpace,
    fit_space,
    sample_blocks,
    sample_documents,
)
from encoder.arrays import Float32
from index.alignment.tables import (
    FittedSpace,
    SpaceRow,
    count_pending,
    delete_other_blocks,
    drop_other_spaces,
    find_space,
    insert_aligned_blocks,
    insert_space,
    load_space,
    make_current,
    next_pending,
)
from index.progress import Progress
from index.sqlite.block_vectors import BLOCKS_BY_VECTOR_ID, read_block_vectors
from index.sqlite.connections import SQLiteConnections, vector_id_list

REFIT_DRIFT = 0.5
_DOCUMENTS_A_TRANSACTION = 64
_ROWS_A_TRANSACTION = 512
_WITH_BLOCKS = """
SELECT vector_id FROM block_vectors ORDER BY vector_id"""

_Stop = Callable[[], bool]


def refresh_alignment(
    connections: SQLiteConnections, progress: Progress, *, fit: bool, stop: _Stop
) -> None:
    """Project pending documents; with `fit`, first fit a new space if there are enough blocks."""
    with connections.reading() as connection:
        following, current = find_space(connection, current=False), find_space(connection)
    if fit and following is None and (fitted := fit_to_documents(connections, progress)):
        with connections.writing() as connection:
            insert_space(connection, fitted, current=False)
            following = find_space(connection, current=False)
    target = following or current
    if target is None:
        return
    _project_pending(connections, target, progress, stop)
    if stop():
        return
    if following is not None:
        _switch(connections, following)
    _clean(connections, target.space_id, stop)


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


def _project_pending(
    connections: SQLiteConnections, target: SpaceRow, progress: Progress, stop: _Stop
) -> None:
    with connections.reading() as connection:
        pending = count_pending(connection, target.space_id)
        if not pending:
            return
        space = load_space(connection, target.space_id)
    progress.started("aligning documents", pending)
    last = -1
    while not stop():
        with connections.reading() as connection:
            ids = next_pending(connection, target.space_id, last, _DOCUMENTS_A_TRANSACTION)
            rows = connection.execute(BLOCKS_BY_VECTOR_ID, (vector_id_list(ids),)).fetchall()
        if not ids:
            return
        stored = read_block_vectors(rows)
        projected = [
            (vector_id, space.project(blocks.vectors)) for vector_id, blocks in stored.items()
        ]
        with connections.writing() as connection:
            insert_aligned_blocks(connection, target.space_id, projected)
        last = ids[-1]
        progress.advanced(len(ids))
        if len(ids) < _DOCUMENTS_A_TRANSACTION:
            return  # documents that are put meanwhile would keep this loop going


def _switch(connections: SQLiteConnections, following: SpaceRow) -> None:
    """Use the next space, after projecting the documents that were put meanwhile."""
    with connections.writing() as connection:
        space: AlignmentSpace | None = None
        while ids := next_pending(connection, following.space_id, -1, _DOCUMENTS_A_TRANSACTION):
            space = space or load_space(connection, following.space_id)
            rows = connection.execute(BLOCKS_BY_VECTOR_ID, (vector_id_list(ids),)).fetchall()
            stored = read_block_vectors(rows)
            projected = [
                (vector_id, space.project(blocks.vectors)) for vector_id, blocks in stored.items()
            ]
            insert_aligned_blocks(connection, following.space_id, projected)
        make_current(connection, following.space_id)


def _clean(connections: SQLiteConnections, space_id: int, stop: _Stop) -> None:
    """Delete what belongs to former spaces, a little at a time: writes wait for a transaction."""
    while not stop():
        with connections.writing() as connection:
            if not delete_other_blocks(connection, space_id, _ROWS_A_TRANSACTION):
                drop_other_spaces(connection)
                return

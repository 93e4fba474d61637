"""Examines the index: its files, and what is in it against the document store."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from index.errors import SnapshotError
from index.findings import Finding
from index.snapshot import read_current_snapshot
from index.sqlite_store import SQLiteDocumentStore
from index.vector_index import Int64

_VECTORS_A_READ = 1_024


def examine_index(root: Path, store: SQLiteDocumentStore) -> Iterator[Finding]:
    """Compare the current generation with the store, id by id and vector by vector, exactly.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        manifest, index = read_current_snapshot(
            root, fingerprint=store.fingerprint, dimension=store.dimension
        )
        if manifest.sequence > store.sequence:
            raise SnapshotError(
                f"the index holds change {manifest.sequence} of the store, and the store ends at "
                f"{store.sequence}: it has lost changes, or is another store"
            )
        if manifest.sequence < store.log.start:
            raise SnapshotError("it is so old that the store has forgotten the changes since then")
    except SnapshotError as error:
        yield Finding("index", str(error), "rebuild the index")
        return
    since = store.changes_since(manifest.sequence)
    living = store.changes_since(0).added
    expected = np.setdiff1d(living, since.added)
    held = np.setdiff1d(index.ids(), since.removed)
    yield from _compared_ids(held, expected)
    both = np.intersect1d(held, expected)
    wrong = 0
    for start in range(0, len(both), _VECTORS_A_READ):
        ids, vectors = store.vectors(both[start : start + _VECTORS_A_READ])
        wrong += int(np.any(index.vectors(ids) != vectors, axis=1).sum())
    if wrong:
        yield Finding("index", f"{wrong} vectors are not those of the store", "rebuild the index")


def _compared_ids(held: Int64, expected: Int64) -> Iterator[Finding]:
    missing, superfluous = np.setdiff1d(expected, held), np.setdiff1d(held, expected)
    if len(missing):
        problem = f"it lacks {len(missing)} documents, vector id {missing[0]} for one"
        yield Finding("index", problem, "rebuild the index")
    if len(superfluous):
        problem = f"it holds {len(superfluous)} documents that the store does not"
        yield Finding("index", problem, "rebuild the index")

"""A data directory read by a process beside the one that writes, which says how far it must be.

The store itself is always read as it is. The index over its vectors is a copy of each process, and
so are the frequencies that norms of words are computed by: both are brought to where the writing
process has them, so that both processes give the same answers.
"""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from index.directory.data_directory import SNAPSHOTS_DIRECTORY, STORE_FILE, DataDirectory
from index.directory.engines import choose_backend
from index.errors import SnapshotError
from index.store.document_store import SQLiteDocumentStore
from index.vectors.drift import Training
from index.vectors.live_index import LiveIndex, open_live_index
from index.vectors.vector_index import Precision

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """How far the writing process is: what a search beside it must see.

    Attributes:
        sequence: of the store that its index holds.
        generation: of its index.
        training: what the lists of that were trained for.
        nprobe: how many of these lists a query visits.
    """

    sequence: int
    generation: int
    training: Training
    nprobe: int


def position_of(index: LiveIndex) -> Position:
    """Return how far an index is."""
    return Position(index.sequence, index.generation, index.training, index.nprobe)


def open_beside_writer(
    path: Path, *, fingerprint: str, dimension: int, index_precision: Precision | None
) -> DataDirectory:
    """Open a data directory for reading that another process has open for writing.

    That process has compared the store with its digest, or does so.

    Args:
        path: the directory.
        fingerprint: of the checkpoint whose vectors it holds.
        dimension: of these vectors.
        index_precision: as of `open_data_directory`.

    Raises:
        FingerprintMismatchError: its vectors are of another checkpoint.
        StoreError: there is no store, or it is damaged.
    """
    with ExitStack() as opened:
        store = SQLiteDocumentStore(
            path / STORE_FILE, fingerprint=fingerprint, dimension=dimension, read_only=True
        )
        opened.callback(store.close)
        store.lexical.changed()  # reads its published copy
        backend = choose_backend(index_precision, None, None)
        root = path / SNAPSHOTS_DIRECTORY
        index = open_live_index(store, root, read_only=True, backend=backend)
        return DataDirectory(path, store, index, opened.pop_all())


def follow(data: DataDirectory, position: Position) -> bool:
    """Bring a data directory that was opened beside its writer to the position of that, or beyond.

    Returns:
        Whether it is there; it is not where the index of the writer was never published.

    Raises:
        StoreError: the store cannot be read.
    """
    index = data.index
    if index.generation < position.generation:
        try:
            index.load_snapshot()
        except SnapshotError as error:
            _log.warning("%s: the index of the writing process: %s", data.path, error)
            return False
    if index.sequence < position.sequence:
        index.catch_up()
    if index.generation > position.generation:
        return True  # published since
    if index.nprobe != position.nprobe:
        index.set_nprobe(position.nprobe, generation=position.generation)
    return (index.generation, index.training) == (position.generation, position.training)

"""The index that is searched: the current snapshot and every change of the store since."""

import logging
import threading
from pathlib import Path

import numpy as np

from index.errors import SnapshotError, StoreError
from index.faiss_index import SAMPLE_PER_LIST, FaissIndex, choose_nlist, train_faiss_index
from index.selection import Selection
from index.snapshot import CURRENT, SavedIndex, publish_snapshot, read_current_snapshot
from index.sqlite_store import Change, SQLiteDocumentStore
from index.vector_index import Float32, Int64, SearchResult

ADD_CHUNK = 1_024  # vectors that searches wait for at most
OUTGROWN_BY = 4
SAMPLE_SEED = 1

_log = logging.getLogger(__name__)


def needs_training(nlist: int, count: int) -> bool:
    """Say whether `count` vectors have outgrown, or no longer fill, an index of `nlist` lists.

    Lists grow with their vectors, so nothing is wrong with an index that is a little off; at
    `OUTGROWN_BY` times too few or too many lists a query scans or compares needlessly much.
    """
    wanted = choose_nlist(count)
    return max(wanted, nlist) >= OUTGROWN_BY * min(wanted, nlist)


class LiveIndex:
    """A searchable copy of a document store. Safe to use from many threads.

    Changes may be applied in any order and from any thread: each of them brings the index up to
    the present state of the store, under one lock, so a change that is late has nothing to do.
    Searches do not take that lock.
    """

    def __init__(self, store: SQLiteDocumentStore, root: Path, *, read_only: bool) -> None:
        """Start with an empty index; use `open_live_index`."""
        self._store = store
        self._root = root
        self._read_only = read_only
        self._updates = threading.Lock()  # held while the index changes or is written
        self._publishing = threading.Lock()  # held by one rebuild or publish; taken first
        self._index = train_faiss_index(np.empty((0, store.dimension), dtype=np.float32), 1)
        self._sequence = 0
        self._generation = 0

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._store.dimension

    @property
    def nlist(self) -> int:
        """How many lists the vectors are kept in."""
        return self._index.nlist

    @property
    def sequence(self) -> int:
        """The store's sequence that the index holds."""
        return self._sequence

    @property
    def generation(self) -> int:
        """The snapshot last published or loaded; 0 for none."""
        return self._generation

    @property
    def outgrown(self) -> bool:
        """Whether the number of vectors calls for a `rebuild`."""
        index = self._index
        return needs_training(index.nlist, len(index))

    def __len__(self) -> int:
        return len(self._index)

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: Selection | None = None,
    ) -> SearchResult:
        """Find the k nearest vectors, of `among`, for each query Float32[Q, dimension].

        Waits for the addition of `ADD_CHUNK` vectors at most, never for a rebuild or a publish.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        return self._index.search(vectors, k, nprobe=nprobe, among=among)

    def apply(self, change: Change) -> None:
        """Bring the index to `change` or beyond; at return searches find what it added.

        Raises:
            StoreError: the store cannot be read; a later call makes good for it.
        """
        if change.sequence > self._sequence:
            self.catch_up()

    def catch_up(self) -> None:
        """Bring the index to the present state of the store.

        Raises:
            StoreError: the store cannot be read; a later call makes good for it.
        """
        with self._updates:
            self._sequence = _catch_up(self._index, self._store, self._sequence)

    def rebuild(self) -> None:
        """Build a new index beside this one from the store's vectors, swap it in, publish it.

        Raises:
            StoreError: the store cannot be read; the old index stays.
            SnapshotError: the new index is in use, but could not be published.
        """
        with self._publishing:
            ids = self._store.changes_since(0).added
            index = _train(ids, self._store)
            sequence = _catch_up(index, self._store, 0)
            with self._updates:
                sequence = _catch_up(index, self._store, sequence)
                # The index first: who sees the new sequence must search the new index.
                self._index = index
                self._sequence = sequence
            if not self._read_only:
                self._publish()

    def publish(self) -> None:
        """Publish the index as a new snapshot; changes wait while it is written, searches do not.

        Raises:
            StoreError: the data directory was opened for reading only.
            SnapshotError: it could not be written; the old snapshot stays current.
        """
        if self._read_only:
            raise StoreError(f"{self._root}: opened for reading only")
        with self._publishing:
            self._publish()

    def _load_snapshot(self) -> None:
        """Replace this index by the current snapshot and replay what the store did since.

        Raises:
            SnapshotError: the snapshot cannot be used; this index stays.
            StoreError: the store cannot be read.
        """
        store = self._store
        manifest, index = read_current_snapshot(
            self._root, fingerprint=store.fingerprint, dimension=store.dimension
        )
        if manifest.sequence > store.sequence:
            raise SnapshotError(f"{self._root}: the snapshot is ahead of the document store")
        if needs_training(index.nlist, len(store)):
            raise SnapshotError(
                f"{self._root}: {index.nlist} lists do not suit {len(store)} vectors"
            )
        sequence = _catch_up(index, store, manifest.sequence)
        # The store is read twice, so another process may have changed it in between.
        count = len(store)
        if store.sequence == sequence and len(index) != count:
            raise SnapshotError(f"{self._root}: the snapshot is of another document store")
        with self._updates:
            self._index = index
            self._sequence = sequence
            self._generation = manifest.generation

    def _publish(self) -> None:
        store = self._store
        manifest = publish_snapshot(
            self._root, self._save, fingerprint=store.fingerprint, dimension=store.dimension
        )
        self._generation = manifest.generation

    def _save(self, path: Path) -> SavedIndex:
        with self._updates:
            self._index.save(path)
            return SavedIndex(self._sequence, self._index.nlist, len(self._index))


def open_live_index(
    store: SQLiteDocumentStore, root: Path, *, read_only: bool = False
) -> LiveIndex:
    """Open the index of a store: from the current snapshot in `root`, else from the store itself.

    A snapshot that is missing, damaged, of another checkpoint or store, or outgrown is only
    logged; the index is then built from the store's vectors and, unless `read_only`, published.

    Raises:
        StoreError: the store cannot be read.
    """
    live = LiveIndex(store, root, read_only=read_only)
    try:
        live._load_snapshot()
    except SnapshotError as error:
        published = (root / CURRENT).exists()
        _log.log(
            logging.WARNING if published else logging.INFO,
            "building the index from the document store: %s",
            error,
        )
        try:
            live.rebuild()
        except SnapshotError as unpublished:
            _log.warning("the index is complete in memory only: %s", unpublished)
    return live


def _catch_up(index: FaissIndex, store: SQLiteDocumentStore, sequence: int) -> int:
    """Bring an index of `sequence` to the store's present sequence, and return that.

    May be repeated after a failure half way: what is there already is not added twice. A vector
    that is deleted while this runs is either not read, or removed by the next change.
    """
    change = store.changes_since(sequence)
    missing = change.added[~index.contains(change.added)]
    for start in range(0, len(missing), ADD_CHUNK):
        index.add(*store.vectors(missing[start : start + ADD_CHUNK]))
    index.remove(change.removed)
    return change.sequence


def _train(vector_ids: Int64, store: SQLiteDocumentStore) -> FaissIndex:
    """Make an empty index that suits the vectors of these ids Int64[N]."""
    nlist = choose_nlist(len(vector_ids))
    wanted = nlist * SAMPLE_PER_LIST if nlist > 1 else 0
    if wanted < len(vector_ids):
        random = np.random.default_rng(SAMPLE_SEED)
        vector_ids = random.choice(vector_ids, wanted, replace=False)
    _, sample = store.vectors(vector_ids)
    return train_faiss_index(sample, nlist)

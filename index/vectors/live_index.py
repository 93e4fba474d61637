"""The index that is searched: the current snapshot and every change of the store since."""

import logging
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from index.errors import SnapshotError, StoreError
from index.id_set import IdSet
from index.store.document_store import SQLiteDocumentStore
from index.store.records import Change
from index.vectors.drift import Drift, Training, measure_drift, needs_training
from index.vectors.faiss_index import FaissIndex, train_faiss_index
from index.vectors.generation import (
    ADD_CHUNK,
    DEFAULT_TARGET,
    Candidate,
    Retrained,
    Served,
    Stop,
    build_candidate,
    never,
    served_from,
)
from index.vectors.recall import nprobe_bounds
from index.vectors.snapshot import (
    CURRENT,
    Manifest,
    SavedIndex,
    oldest_sequence,
    publish_snapshot,
    read_current_snapshot,
)
from index.vectors.vector_index import SearchResult

_log = logging.getLogger(__name__)


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
        self._updates = threading.Lock()  # held while the index changes or is replaced
        self._publishing = threading.Lock()  # held by one rebuild or publish; taken first
        empty = train_faiss_index(np.empty((0, store.dimension), dtype=np.float32), 1)
        self._served = Served(empty, 0, Training(0, 0), 1, 0)

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._store.dimension

    @property
    def nlist(self) -> int:
        """How many lists the vectors are kept in."""
        return self._served.index.nlist

    @property
    def nprobe(self) -> int:
        """How many lists a query visits when the caller does not say."""
        return self._served.nprobe

    @property
    def sequence(self) -> int:
        """The store's sequence that the index holds."""
        return self._served.index.sequence

    @property
    def generation(self) -> int:
        """The snapshot last published or loaded; 0 for none."""
        return self._served.generation

    @property
    def training(self) -> Training:
        """What the lists were trained for."""
        return self._served.training

    def list_sizes(self) -> Int64:
        """Return how many vectors each list keeps, Int64[nlist]."""
        return self._served.index.list_sizes()

    @property
    def outgrown(self) -> bool:
        """Whether the number of vectors calls for a `rebuild`."""
        index = self._served.index
        return needs_training(index.nlist, len(index))

    def __len__(self) -> int:
        return len(self._served.index)

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k nearest vectors, of `among`, for each query Float32[Q, dimension].

        Waits for the addition of `ADD_CHUNK` vectors at most, never for a rebuild or a publish.

        Returns:
            What was found in the generation it names, and in the state of the store that it names:
            all that the store held at this sequence, and nothing that it did not hold. While more
            than `ADD_CHUNK` vectors are added at once, some of them may be found early.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        served = self._served
        nprobe = served.nprobe if nprobe is None else nprobe
        found = served.index.search(vectors, k, nprobe=nprobe, among=among)
        return replace(found, generation=served.generation)

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query exactly; see `FaissIndex.exact_scores`."""
        return self._served.index.exact_scores(vector, k)

    def set_nprobe(self, nprobe: int, *, generation: int) -> bool:
        """Let queries visit another number of lists, within `nprobe_bounds`.

        Args:
            nprobe: how many.
            generation: that it was found out for; of another one nothing is changed.

        Returns:
            Whether it was set.
        """
        with self._updates:
            least, most = nprobe_bounds(self.nlist)
            if self.generation != generation or not least <= nprobe <= most:
                return False
            self._served = replace(self._served, nprobe=nprobe)
            return True

    def measure_drift(self) -> Drift:
        """Measure how far the lists have drifted from the vectors they were trained for.

        Raises:
            StoreError: the store cannot be read.
        """
        served = self._served
        added, removed = self._store.log.count_since(served.training.sequence)
        return measure_drift(
            served.index.list_sizes(), served.training, added=added, removed=removed
        )

    def unpublished(self) -> int:
        """Count the vectors that a restart would have to add or remove after loading the snapshot.

        Raises:
            StoreError: the store cannot be read.
        """
        return sum(self._store.log.count_since(self._served.published))

    def apply(self, change: Change) -> None:
        """Bring the index to `change` or beyond; at return searches find what it added.

        Raises:
            StoreError: the store cannot be read; a later call makes good for it.
        """
        if change.sequence > self.sequence:
            self.catch_up()

    def catch_up(self) -> None:
        """Bring the index to the present state of the store.

        Raises:
            StoreError: the store cannot be read; a later call makes good for it.
        """
        if self._read_only and self.sequence < self._store.log.start:
            self.rebuild()  # the process that writes has forgotten what came since
            return
        with self._updates:
            _catch_up(self._served.index, self._store, self.sequence)

    def rebuild(self) -> None:
        """Build a new index beside this one from the store's vectors, publish it, swap it in.

        Raises:
            StoreError: the store cannot be read; the old index stays.
            SnapshotError: the new index is in use, but could not be published.
        """
        with self._publishing:
            candidate = build_candidate(self._store, DEFAULT_TARGET)
            manifest = None
            try:
                if not self._read_only:
                    manifest = self._publish_candidate(candidate)
            finally:
                self._swap_in(candidate, manifest)

    def retrain(self, target: float, stop: Stop = never) -> Retrained:
        """Build a new generation beside this one, prove it, and only then publish it, swap it in.

        It is refused when its recall@10 of held-out vectors is under the target and under that of
        the old one. Searches and changes go on meanwhile.

        Args:
            target: recall@10 that it is to reach.
            stop: asked often; true gives up.

        Raises:
            StoreError: the store cannot be read, or was opened for reading only.
            SnapshotError: the new generation could not be published; the old one stays.
            RetrainingStoppedError: `stop` said so; the old one stays.
        """
        self._check_writable()
        with self._publishing:
            candidate = build_candidate(self._store, target, stop)
            old = self._served
            old_recall = candidate.held_out.recall(old.index, old.nprobe)
            swapped = candidate.recall >= min(target, old_recall)
            if swapped:
                self._swap_in(candidate, self._publish_candidate(candidate))
        index = candidate.index
        return Retrained(swapped, candidate.recall, old_recall, index.nlist, candidate.nprobe)

    def publish(self) -> None:
        """Publish the index as a new snapshot; changes wait while it is written, searches do not.

        Removals that no kept snapshot has to replay are forgotten.

        Raises:
            StoreError: the data directory was opened for reading only, or the store cannot be
                written.
            SnapshotError: it could not be written; the old snapshot stays current.
        """
        self._check_writable()
        with self._publishing:
            served = self._served
            manifest = self._publish(served.index, served.training, served.nprobe, self._updates)
            with self._updates:
                self._served = replace(
                    self._served, generation=manifest.generation, published=manifest.sequence
                )
            self._store.log.forget(oldest_sequence(self._root), trained=served.training.sequence)

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
        if manifest.sequence < store.log.start:
            raise SnapshotError(f"{self._root}: the store has forgotten the changes since then")
        sequence = _catch_up(index, store, manifest.sequence)
        # The store is read twice, so another process may have changed it in between.
        count = len(store)
        if store.sequence == sequence and len(index) != count:
            raise SnapshotError(f"{self._root}: the snapshot is of another document store")
        with self._updates:
            self._served = served_from(manifest, index)

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"{self._root}: opened for reading only")

    def _swap_in(self, candidate: Candidate, manifest: Manifest | None) -> None:
        """Serve a candidate as what it was published as; where it was not, as the present one."""
        index, training, nprobe = candidate.index, candidate.training, candidate.nprobe
        _catch_up(index, self._store, index.sequence)
        with self._updates:
            _catch_up(index, self._store, index.sequence)
            generation, published = self._served.generation, self._served.published
            if manifest is not None:
                generation, published = manifest.generation, manifest.sequence
            self._served = Served(index, generation, training, nprobe, published)

    def _publish_candidate(self, candidate: Candidate) -> Manifest:
        # Nobody else knows it, so there is no change to wait for.
        return self._publish(candidate.index, candidate.training, candidate.nprobe, nullcontext())

    def _publish(
        self,
        index: FaissIndex,
        training: Training,
        nprobe: int,
        unchanged: AbstractContextManager[object],
    ) -> Manifest:
        """Publish an index; `unchanged` is held while it is written."""

        def save(path: Path) -> SavedIndex:
            with unchanged:
                index.save(path)
                return SavedIndex(
                    sequence=index.sequence,
                    nlist=index.nlist,
                    vectors=len(index),
                    trained_sequence=training.sequence,
                    trained_vectors=training.vectors,
                    nprobe=nprobe,
                )

        store = self._store
        return publish_snapshot(
            self._root, save, fingerprint=store.fingerprint, dimension=store.dimension
        )


def open_live_index(
    store: SQLiteDocumentStore, root: Path, *, read_only: bool = False
) -> LiveIndex:
    """Open the index of a store: from the current snapshot in `root`, else from the store itself.

    A snapshot that is missing, damaged, of another checkpoint or store, or too old is only logged;
    the index is then built from the store's vectors and, unless `read_only`, published. One that
    was outgrown is used: nobody waits for training at a start, nor is it proven there.

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

    May be repeated after a failure half way: what is there already is not added twice. The last
    `ADD_CHUNK` vectors, mostly all, come together with what is removed. A vector that is deleted
    while a longer change runs is either not read, or removed by the next change.
    """
    change, ids, vectors = store.read_changes(sequence, ADD_CHUNK)
    early = change.added[: len(change.added) - len(ids)]
    missing = early[~index.contains(early)]
    for start in range(0, len(missing), ADD_CHUNK):
        index.add(*store.vectors(missing[start : start + ADD_CHUNK]))
    new = ~index.contains(ids)
    index.change(ids[new], vectors[new], change.removed, change.sequence)
    return change.sequence

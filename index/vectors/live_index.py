"""The live index: the current snapshot and every change of the store since.

It holds vectors as they are compared: in the space of the collection, where that whitens them. A
generation stays in its space; `moved` says when the collection has another one.

A new generation is built and measured while the live one is searched, then published and swapped
in.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.alignment.space import AlignmentSpace
from encoder.arrays import Float32, Int64
from index.errors import RetrainingStoppedError, SnapshotError, StoreError
from index.id_set import IdSet
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.vectors.faiss.faiss_index import FaissIndex, train_faiss_index
from index.vectors.lists import (
    SAMPLE_PER_LIST,
    Drift,
    choose_nlist,
    choose_nprobe,
    measure_drift,
    nprobe_steps,
)
from index.vectors.recall import HeldOutQueries
from index.vectors.snapshot import Manifest, load_snapshot, publish_snapshot
from index.vectors.vector_index import DEFAULT_PRECISION, Precision, SearchResult

_log = logging.getLogger(__name__)

DEFAULT_TARGET = 0.95
HELD_OUT = 256
SAMPLE_SEED = 1
ADD_CHUNK = 1_024  # vectors that searches wait for at most

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Generation:
    """An index with what belongs to it; the live one is replaced as a whole, so that all agrees.

    Attributes:
        index: is searched.
        manifest: what its lists were trained for, how many a query visits, and its snapshot.
        space: that whitens vectors; None where they are as the store has them.
    """

    index: FaissIndex
    manifest: Manifest
    space: AlignmentSpace | None = None

    def whiten(self, vectors: Float32) -> Float32:
        """Return document vectors [N, dimension] as the index compares them."""
        return vectors if self.space is None else self.space.whiten(vectors)


@dataclass(frozen=True, slots=True)
class RetrainingResult:
    """The outcome of building a new generation.

    Attributes:
        swapped: whether it is live now; otherwise the old one still is.
        recall: recall@10 of the new one on held-out vectors, against exact search.
        old_recall: that of the old one on the same vectors.
    """

    swapped: bool
    recall: float
    old_recall: float


def _whitening(store: DocumentStore) -> tuple[int, AlignmentSpace | None]:
    """Return the space of a store with its number, if it whitens document vectors; 0 if not."""
    used = store.alignment.space()
    if used is None or used.space.documents is None:
        return 0, None
    return used.space_id, used.space


def _build_generation(
    store: DocumentStore, former: Manifest, target: float, stop: Stop = lambda: False
) -> tuple[Generation, HeldOutQueries, float]:
    """Train lists for the present vectors of a store, fill them, and measure their recall.

    Vectors that are deleted meanwhile may be missing: catching up with the store removes them
    anyway.

    Args:
        store: whose vectors.
        former: the generation before, whose precision this one has.
        target: recall@10 that nprobe is chosen for.
        stop: called before every chunk; true gives up.

    Returns:
        What may become the live index, vectors that it was not trained for, and its recall@10 of
        these.

    Raises:
        RetrainingStoppedError: `stop` returned true.
    """
    number, space = _whitening(store)
    sequence, present = store.log.added_after(0)
    manifest = replace(
        former, trained_sequence=sequence, trained_vectors=len(present), space=number
    )

    def read(ids: Int64) -> tuple[Int64, Float32]:
        found, vectors = store.vectors(ids)
        return found, vectors if space is None else space.whiten(vectors)

    nlist = choose_nlist(len(present))
    random = np.random.default_rng(SAMPLE_SEED)
    held_out_count = min(HELD_OUT, len(present) // 10) if nlist > 1 else 0
    held_ids = np.sort(random.choice(present, held_out_count, replace=False))
    sample = np.setdiff1d(present, held_ids) if nlist > 1 else present[:0]
    if len(sample) > nlist * SAMPLE_PER_LIST:
        random = np.random.default_rng(SAMPLE_SEED)
        sample = random.choice(sample, nlist * SAMPLE_PER_LIST, replace=False)
    index = train_faiss_index(read(sample)[1], nlist, former.precision)
    held_out = HeldOutQueries(*read(held_ids), read)
    for start in range(0, len(present), ADD_CHUNK):
        if stop():
            raise RetrainingStoppedError
        ids, vectors = read(present[start : start + ADD_CHUNK])
        index.change(ids, vectors, sequence=sequence)
        held_out.compare_with(ids, vectors)
    nprobe, recall = choose_nprobe(nlist, target, lambda some: held_out.recall(index, some))
    return Generation(index, replace(manifest, nprobe=nprobe), space), held_out, recall


def _catch_up(live: Generation, store: DocumentStore) -> bool:
    """Bring an index to the store's present state; return False where its changes are forgotten.

    Can be repeated after it failed half way: what is there already is not added twice. The last
    `ADD_CHUNK` vectors, mostly all, come together with what is removed. A vector that is deleted
    while a longer change runs is either not read, or removed by the next change.
    """
    index = live.index
    found = store.read_changes(index.sequence, ADD_CHUNK)
    if found is None:
        return False
    changes, ids, vectors = found
    early = np.array(changes.changed[:-ADD_CHUNK], dtype=np.int64)
    missing = early[~index.held.contains(early)]
    for start in range(0, len(missing), ADD_CHUNK):
        present, found_early = store.vectors(missing[start : start + ADD_CHUNK])
        index.change(present, live.whiten(found_early))
    new, removed = ~index.held.contains(ids), np.array(changes.removed, dtype=np.int64)
    vectors = live.whiten(vectors[new])
    index.change(ids[new], vectors, removed=removed, sequence=changes.sequence)
    return True


def read_snapshot(
    store: DocumentStore, path: Path, precision: Precision | None = None
) -> Generation:
    """Read the snapshot at `path`, to which the changes of the store can be added.

    Raises:
        SnapshotError: it is damaged, of another store, time or space, or not of this precision.
    """
    manifest, index = load_snapshot(path)
    if manifest.identity != store.log.identity:
        raise SnapshotError(f"{path}: the snapshot is of another document store")
    if precision not in (None, manifest.precision):
        raise SnapshotError(f"{path}: holds vectors in {manifest.precision}, not in {precision}")
    if not store.log.start <= manifest.sequence <= store.sequence:
        raise SnapshotError(
            f"{path}: holds change {manifest.sequence} of the store, which remembers those from "
            f"{store.log.start} to {store.sequence}"
        )
    number, space = _whitening(store)
    if manifest.space != number:
        raise SnapshotError(f"{path}: holds vectors in another space than that of the store")
    return Generation(index, manifest, space)


class LiveIndex:
    """A searchable copy of a document store. Safe to use from many threads.

    Changes may be applied in any order and from any thread: each of them brings the index up to
    the present state of the store, under one lock, so a late change has nothing left to do.
    Searches do not take that lock. What reads the store raises StoreError where it cannot be read;
    a later call makes up for it.
    """

    def __init__(
        self,
        store: DocumentStore,
        path: Path,
        *,
        read_only: bool = False,
        precision: Precision | None = None,
    ) -> None:
        """Open the index of a store: from the snapshot at `path`, else from the store.

        A snapshot that is missing, damaged, too old or of another store or precision is only
        logged; the index is then built from the store's vectors and, unless `read_only`,
        published. An outgrown one is used as it is: opening neither trains nor measures an index.

        Args:
            store: whose vectors.
            path: of the snapshot.
            read_only: publish nothing.
            precision: that vectors are held in; None for that of the snapshot, or
                `DEFAULT_PRECISION` if there is none.
        """
        self._store = store
        self._path = path
        self._read_only = read_only
        self._updates = threading.Lock()  # held while the index changes or is replaced
        self._publishing = threading.Lock()  # held by one rebuild or publish; taken first
        empty = train_faiss_index(np.empty((0, store.dimension), dtype=np.float32), 1)
        manifest = Manifest(store.log.identity, precision or DEFAULT_PRECISION)
        self._live = Generation(empty, manifest)
        try:
            self.load_snapshot(precision)
        except SnapshotError as error:
            level = logging.WARNING if path.exists() else logging.INFO
            _log.log(level, "building the index from the document store: %s", error)
            try:
                self.rebuild()
            except SnapshotError as unpublished:
                _log.warning("the index is complete in memory only: %s", unpublished)

    @property
    def exact(self) -> bool:
        """Whether scores are those of the store's vectors; otherwise vectors are rounded."""
        return self._live.index.exact

    @property
    def nlist(self) -> int:
        """How many lists the vectors are kept in."""
        return self._live.index.nlist

    @property
    def sequence(self) -> int:
        """The store's sequence that the index holds."""
        return self._live.index.sequence

    @property
    def manifest(self) -> Manifest:
        """What its lists were trained for, how many a query visits, and its snapshot."""
        return self._live.manifest

    def __len__(self) -> int:
        return len(self._live.index)

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
            The neighbours, with the generation and the sequence of the store that were searched:
            all that the store held at this sequence, and nothing that it did not hold. While more
            than `ADD_CHUNK` vectors are added at once, some of them may be found early.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        live = self._live
        nprobe = live.manifest.nprobe if nprobe is None else nprobe
        found = live.index.search(live.whiten(vectors), k, nprobe=nprobe, among=among)
        return replace(found, generation=live.manifest.generation)

    def scores(self, vector: Float32, ids: Int64) -> Float32:
        """Return the cosine of an encoded vector Float32[dimension] with each of ids Int64[N].

        With their vectors as the index holds them.

        Returns:
            Float32[N]; NaN for ids that are not there.
        """
        live = self._live
        scores: Float32 = live.index.vectors(ids) @ live.whiten(vector[np.newaxis])[0]
        return scores

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Compare one query with all vectors of the index; see `FaissIndex.exact_scores`."""
        live = self._live
        return live.index.exact_scores(live.whiten(vector[np.newaxis])[0], k)

    def set_nprobe(self, nprobe: int, *, generation: int) -> bool:
        """Change how many lists queries visit, to one of `nprobe_steps`.

        Args:
            nprobe: how many.
            generation: that it was measured for; nothing changes where another one is live.

        Returns:
            Whether it was set.
        """
        with self._updates:
            known = self.manifest.generation == generation
            if not known or nprobe not in nprobe_steps(self.nlist):
                return False
            self._live = replace(self._live, manifest=replace(self.manifest, nprobe=nprobe))
            return True

    def measure_drift(self) -> Drift:
        """Measure how far the lists have drifted from the vectors they were trained for."""
        live = self._live
        trained = live.manifest.trained_vectors
        added, removed = self._store.log.count_since(live.manifest.trained_sequence, trained)
        drift = measure_drift(live.index.list_sizes(), trained, added=added, removed=removed)
        return replace(drift, moved=live.manifest.space != _whitening(self._store)[0])

    def unpublished(self) -> int:
        """Count the vectors that a restart would add or remove after loading the snapshot."""
        return self._store.log.length_since(self.manifest.sequence)

    def apply(self, change: Changes) -> None:
        """Bring the index to `change` or beyond; at return searches find what it added."""
        if change.sequence > self.sequence:
            self.catch_up()

    def catch_up(self) -> None:
        """Bring the index to the present state of the store."""
        with self._updates:
            known = _catch_up(self._live, self._store)
        if not known:
            self.rebuild()  # another process has forgotten the changes since

    def rebuild(self) -> None:
        """Build a new index from the store's vectors, publish it, swap it in.

        Raises:
            StoreError: the store cannot be read; the old index stays.
            SnapshotError: the new index is in use, but could not be published.
        """
        with self._publishing:
            new, _, _ = _build_generation(self._store, self.manifest, DEFAULT_TARGET)
            try:
                if not self._read_only:
                    new = self._published(new)
            finally:
                self._swap_in(new)

    def retrain(self, target: float, stop: Stop = lambda: False) -> RetrainingResult:
        """Build a new generation, measure it, then publish it and swap it in.

        It is rejected when its recall@10 of held-out vectors is below the target and below that
        of the old one. Searches and changes go on meanwhile.

        Args:
            target: recall@10 to reach.
            stop: called often; true gives up.

        Raises:
            StoreError: the store cannot be read, or was opened for reading only.
            SnapshotError: the new generation could not be published; the old one stays.
            RetrainingStoppedError: `stop` returned true; the old one stays.
        """
        self._check_writable()
        with self._publishing:
            new, held_out, recall = _build_generation(self._store, self.manifest, target, stop)
            old_recall = held_out.recall(self._live.index, self.manifest.nprobe)
            swapped = recall >= min(target, old_recall)
            if swapped:
                self._swap_in(self._published(new))
        return RetrainingResult(swapped, recall, old_recall)

    def publish(self) -> None:
        """Publish the index as a new snapshot; changes wait while it is written, searches do not.

        Removals before the snapshot that this one replaces are forgotten.

        Raises:
            StoreError: the data directory was opened for reading only, or the store cannot be
                written.
            SnapshotError: it could not be written; the old snapshot stays current.
        """
        self._check_writable()
        with self._publishing:
            before = self._live
            after = self._published(before).manifest
            with self._updates:
                self._live = replace(before, manifest=replace(after, nprobe=self.manifest.nprobe))
            self._store.log.forget(before.manifest.sequence)

    def load_snapshot(self, precision: Precision | None = None) -> None:
        """Replace this index by the snapshot and replay the changes of the store since.

        Args:
            precision: that it must have; None for any.

        Raises:
            SnapshotError: the snapshot cannot be used; this index stays.
        """
        loaded = read_snapshot(self._store, self._path, precision)
        if not _catch_up(loaded, self._store):
            raise SnapshotError(f"{self._path}: the store has forgotten the changes since")
        with self._updates:
            self._live = loaded

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"{self._path}: opened for reading only")

    def _published(self, generation: Generation) -> Generation:
        """Publish an index as a new snapshot, and return it with the number of that."""
        manifest = publish_snapshot(self._path, generation.index.save, generation.manifest)
        return replace(generation, manifest=manifest)

    def _swap_in(self, new: Generation) -> None:
        """Make a generation live; one that was not published has the number of the former."""
        _catch_up(new, self._store)
        with self._updates:
            _catch_up(new, self._store)
            self._live = new

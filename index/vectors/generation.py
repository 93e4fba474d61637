"""Generations of the index: the live one, and a candidate that is built and measured beside it."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Int64
from index.errors import RetrainingStoppedError, SnapshotError, VectorEngineError
from index.store.ports import VectorSource
from index.store.records import Change
from index.vectors.backends import Backend
from index.vectors.drift import Training
from index.vectors.lists import SAMPLE_PER_LIST, choose_nprobe, nprobe_bounds
from index.vectors.recall import HeldOutQueries
from index.vectors.snapshot import (
    INDEX_FILE,
    Manifest,
    SavedIndex,
    current_generation,
    publish_snapshot,
    read_current_snapshot,
)
from index.vectors.vector_index import VectorIndex

DEFAULT_TARGET = 0.95
HELD_OUT = 256
SAMPLE_SEED = 1
ADD_CHUNK = 1_024  # vectors that searches wait for at most

_log = logging.getLogger(__name__)

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Generation:
    """The live index with what belongs to it; replaced as a whole, so that its parts agree.

    Attributes:
        index: is searched.
        number: of the snapshot last published or loaded; 0 for none.
        training: what the lists of the index were trained for.
        nprobe: lists that a query visits.
        published: the sequence that the snapshot holds.
    """

    index: VectorIndex
    number: int
    training: Training
    nprobe: int
    published: int


@dataclass(frozen=True, slots=True)
class RetrainingResult:
    """The outcome of building a new generation.

    Attributes:
        swapped: whether it is live now; otherwise the old one still is.
        recall: recall@10 of the new one on held-out vectors, against exact search.
        old_recall: that of the old one on the same vectors.
        nlist: lists of the new one.
        nprobe: lists that a query of the new one visits.
    """

    swapped: bool
    recall: float
    old_recall: float
    nlist: int
    nprobe: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """An index that may replace the live one.

    Attributes:
        index: holds what the store held at `training.sequence`.
        training: what its lists were trained for.
        nprobe: how many of its lists a query should visit.
        recall: recall@10 of the held-out vectors with that nprobe.
        held_out: these vectors.
    """

    index: VectorIndex
    training: Training
    nprobe: int
    recall: float
    held_out: HeldOutQueries


def never() -> bool:
    """Do not stop."""
    return False


def build_candidate(
    store: VectorSource, backend: Backend, target: float, stop: Stop = never
) -> Candidate:
    """Train lists for the present vectors of a store, fill them, and measure their recall.

    Vectors that are deleted meanwhile may be missing: catching up with the store removes them
    anyway.

    Args:
        store: whose vectors.
        backend: makes the index.
        target: recall@10 that nprobe is chosen for.
        stop: asked before every chunk; true gives up.

    Raises:
        StoreError: the store cannot be read.
        RetrainingStoppedError: `stop` returned true.
        VectorEngineError: the engine failed.
    """
    change = store.changes_since(0)
    nlist = backend.choose_nlist(len(change.added))
    held_ids = _choose_held_out(change.added) if nlist > 1 else change.added[:0]
    index = _train(np.setdiff1d(change.added, held_ids), nlist, store, backend)
    held_out = HeldOutQueries(*store.vectors(held_ids), store.vectors)
    for start in range(0, len(change.added), ADD_CHUNK):
        if stop():
            raise RetrainingStoppedError
        ids, vectors = store.vectors(change.added[start : start + ADD_CHUNK])
        index.change(ids, vectors)
        held_out.compare_with(ids, vectors)
    index.change(*store.vectors(change.added[:0]), sequence=change.sequence)
    backend.settle(index)
    nprobe, recall = choose_nprobe(nlist, target, lambda some: held_out.recall(index, some))
    training = Training(change.sequence, len(change.added))
    return Candidate(index, training, nprobe, recall, held_out)


def catch_up(index: VectorIndex, store: VectorSource, sequence: int) -> int:
    """Bring an index of `sequence` to the store's present sequence, and return that.

    Can be repeated after it failed half way: what is there already is not added twice. The last
    `ADD_CHUNK` vectors, mostly all, come together with what is removed. A vector that is deleted
    while a longer change runs is either not read, or removed by the next change.
    """
    change, ids, vectors = store.read_changes(sequence, ADD_CHUNK)
    early = change.added[: len(change.added) - len(ids)]
    missing = early[~index.contains(early)]
    for start in range(0, len(missing), ADD_CHUNK):
        index.change(*store.vectors(missing[start : start + ADD_CHUNK]))
    new = ~index.contains(ids)
    index.change(ids[new], vectors[new], removed=change.removed, sequence=change.sequence)
    return change.sequence


def follow(index: VectorIndex, change: Change) -> bool:
    """Apply a small change that has its vectors, if the index is of the sequence before it.

    It need not be read back from the store. A longer change that failed may have added some of the
    vectors early, as `catch_up` does.

    Returns:
        Whether it did; otherwise the changes in between are to be read from the store.
    """
    vectors, ids = change.vectors, change.added
    if vectors is None or change.sequence != index.sequence + 1 or len(ids) > ADD_CHUNK:
        return False
    new = ~index.contains(ids)
    index.change(ids[new], vectors[new], removed=change.removed, sequence=change.sequence)
    return True


def load_generation(
    store: VectorSource, root: Path, backend: Backend, *, read_only: bool = False
) -> Generation:
    """Load the current snapshot in `root` and replay the changes of the store since.

    Where the engine keeps changes, the process that writes makes them: a read-only one finds them.

    Raises:
        SnapshotError: the snapshot cannot be used.
        StoreError: the store cannot be read.
        VectorEngineError: the engine failed.
    """
    manifest, index = read_current_snapshot(
        root, backend, fingerprint=store.fingerprint, dimension=store.dimension
    )
    if manifest.sequence > store.sequence:
        raise SnapshotError(f"{root}: the snapshot is ahead of the document store")
    if manifest.sequence < store.log.start:
        raise SnapshotError(f"{root}: the store has forgotten the changes since then")
    if backend.keeps_changes:
        _reconcile(index, store, root, read_only=read_only)
    else:
        sequence = catch_up(index, store, manifest.sequence)
        # The store is read twice, so another process may have changed it in between.
        count = len(store)
        if store.sequence == sequence and len(index) != count:
            raise SnapshotError(f"{root}: the snapshot is of another document store")
    least, most = nprobe_bounds(index.nlist)
    training = Training(manifest.trained_sequence, manifest.trained_vectors)
    nprobe = min(max(least, manifest.nprobe), most)
    return Generation(index, manifest.generation, training, nprobe, manifest.sequence)


def _reconcile(index: VectorIndex, store: VectorSource, root: Path, *, read_only: bool) -> None:
    """Bring an index that has kept changes by itself to the store, id by id.

    The changes since its snapshot do not tell what it has: those of a process that was killed may
    be there, also vectors that were added and removed since; and an engine that was killed may have
    lost some.

    Raises:
        SnapshotError: it has other vectors than the store, and may not be changed.
    """
    present = store.changes_since(0)
    held = index.ids()
    missing, removed = np.setdiff1d(present.added, held), np.setdiff1d(held, present.added)
    if read_only and len(missing) + len(removed):
        raise SnapshotError(f"{root}: the engine has other vectors than the document store")
    for start in range(0, len(missing), ADD_CHUNK):
        index.change(*store.vectors(missing[start : start + ADD_CHUNK]))
    nothing = store.vectors(present.added[:0])
    index.change(*nothing, removed=removed, sequence=present.sequence)


def publish_generation(
    store: VectorSource,
    root: Path,
    backend: Backend,
    source: Candidate | Generation,
    unchanged: AbstractContextManager[object],
) -> Manifest:
    """Publish an index as a new snapshot in `root`; `unchanged` is held while it is written.

    Raises:
        SnapshotError, VectorEngineError: as `publish_snapshot`.
    """

    def save(path: Path) -> SavedIndex:
        with unchanged:
            source.index.save(path)
            return SavedIndex(
                backend=backend.name,
                sequence=source.index.sequence,
                nlist=source.index.nlist,
                vectors=len(source.index),
                trained_sequence=source.training.sequence,
                trained_vectors=source.training.vectors,
                nprobe=source.nprobe,
            )

    return publish_snapshot(root, save, fingerprint=store.fingerprint, dimension=store.dimension)


def drop_others(backend: Backend, root: Path, live: VectorIndex) -> None:
    """Drop what the engine keeps besides the current snapshot and the live index; never fails."""
    try:
        saved = [root / current_generation(root) / INDEX_FILE]
    except SnapshotError:
        saved = []
    try:
        backend.drop_others(saved, live)
    except VectorEngineError as error:  # they only take room
        _log.warning("indexes that are no longer used are left: %s", error)


def _choose_held_out(ids: Int64) -> Int64:
    random = np.random.default_rng(SAMPLE_SEED)
    return np.sort(random.choice(ids, min(HELD_OUT, len(ids) // 10), replace=False))


def _train(vector_ids: Int64, nlist: int, store: VectorSource, backend: Backend) -> VectorIndex:
    """Make an empty index of `nlist` lists that suits the vectors of these ids Int64[N]."""
    sample_size = nlist * SAMPLE_PER_LIST if nlist > 1 else 0
    if sample_size < len(vector_ids):
        random = np.random.default_rng(SAMPLE_SEED)
        vector_ids = random.choice(vector_ids, sample_size, replace=False)
    _, sample = store.vectors(vector_ids)
    return backend.train(sample, nlist)

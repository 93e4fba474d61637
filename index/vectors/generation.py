"""A new generation of the index, built beside the one that is searched, and proven."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from index.errors import RetrainingStoppedError
from index.store.document_store import SQLiteDocumentStore
from index.vectors.drift import Training
from index.vectors.faiss_index import SAMPLE_PER_LIST, FaissIndex, choose_nlist, train_faiss_index
from index.vectors.recall import HeldOut, choose_nprobe, nprobe_bounds
from index.vectors.snapshot import Manifest


@dataclass(frozen=True, slots=True)
class Retrained:
    """What became of a new generation.

    Attributes:
        swapped: whether it is searched now; else the old one is, as before.
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
class Served:
    """What is searched: one generation, never changed but replaced, so that its parts agree."""

    index: FaissIndex
    generation: int
    training: Training
    nprobe: int
    published: int  # the sequence that the snapshot of this generation holds


def served_from(manifest: Manifest, index: FaissIndex) -> Served:
    """Return what to serve of a snapshot, with nprobe kept within the bounds of today."""
    least, most = nprobe_bounds(index.nlist)
    training = Training(manifest.trained_sequence, manifest.trained_vectors)
    nprobe = min(max(least, manifest.nprobe), most)
    return Served(index, manifest.generation, training, nprobe, manifest.sequence)


DEFAULT_TARGET = 0.95
HELD_OUT = 256
SAMPLE_SEED = 1
ADD_CHUNK = 1_024  # vectors that searches wait for at most

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An index that may take the place of the one that is searched.

    Attributes:
        index: it holds what the store held at `training.sequence`.
        training: what its lists were trained for.
        nprobe: how many of its lists a query should visit.
        recall: recall@10 of the held-out vectors with that nprobe.
        held_out: these vectors.
    """

    index: FaissIndex
    training: Training
    nprobe: int
    recall: float
    held_out: HeldOut


def never() -> bool:
    """Do not stop."""
    return False


def build_candidate(store: SQLiteDocumentStore, target: float, stop: Stop = never) -> Candidate:
    """Train lists for the present vectors of a store, fill them, and measure their recall.

    Vectors that are deleted meanwhile may be missing: to catch up with the store removes them
    anyway.

    Args:
        store: whose vectors.
        target: recall@10 that nprobe is chosen for.
        stop: asked before every chunk; true gives up.

    Raises:
        StoreError: the store cannot be read.
        RetrainingStoppedError: `stop` said so.
    """
    change = store.changes_since(0)
    nlist = choose_nlist(len(change.added))
    held_ids = _held_out(change.added) if nlist > 1 else change.added[:0]
    index = _train(np.setdiff1d(change.added, held_ids), nlist, store)
    held_out = HeldOut(*store.vectors(held_ids))
    for start in range(0, len(change.added), ADD_CHUNK):
        if stop():
            raise RetrainingStoppedError
        ids, vectors = store.vectors(change.added[start : start + ADD_CHUNK])
        index.add(ids, vectors)
        held_out.see(ids, vectors)
    none = change.added[:0]
    index.change(none, store.vectors(none)[1], none, change.sequence)
    nprobe, recall = choose_nprobe(nlist, target, lambda some: held_out.recall(index, some))
    training = Training(change.sequence, len(change.added))
    return Candidate(index, training, nprobe, recall, held_out)


def _held_out(ids: Int64) -> Int64:
    random = np.random.default_rng(SAMPLE_SEED)
    return np.sort(random.choice(ids, min(HELD_OUT, len(ids) // 10), replace=False))


def _train(vector_ids: Int64, nlist: int, store: SQLiteDocumentStore) -> FaissIndex:
    """Make an empty index of `nlist` lists that suits the vectors of these ids Int64[N]."""
    wanted = nlist * SAMPLE_PER_LIST if nlist > 1 else 0
    if wanted < len(vector_ids):
        random = np.random.default_rng(SAMPLE_SEED)
        vector_ids = random.choice(vector_ids, wanted, replace=False)
    _, sample = store.vectors(vector_ids)
    return train_faiss_index(sample, nlist)

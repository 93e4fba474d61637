"""The searchable copy of the vectors in FAISS IVF: one cell while small, many cells when large.

An index of one list needs no training and searches exactly, so ids, deletes and files are the same
code at every size.

Precision. Many lists hold vectors as fp32, as fp16, or as int8: 8-bit scalar quantisation, for
which training finds the range of each dimension. One list holds fp32 whatever the precision: it
has no training that could find ranges, and few vectors.

Threads. FAISS spreads a call over OpenMP threads. A search here runs on the calling thread alone:
a second thread gains nothing for a single query, every thread that ever searched would keep a
team of threads, and where cores are shared a team waits for its slowest member far longer than a
query takes. Many queries come from many threads, which do not wait for each other. Training and
large additions, which no request waits for, use all cores; training a GPU, where there is one.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import BinaryIO

import faiss
import numpy as np
from faiss.contrib.inspect_tools import get_invlist_sizes
from faiss.contrib.ivf_tools import add_preassigned

from encoder.arrays import Float32, Int64
from index.id_set import IdSet
from index.vectors.faiss import gpu, ivf
from index.vectors.faiss.exact import compare_all
from index.vectors.lists import SAMPLE_PER_LIST, default_nprobe
from index.vectors.vector_index import (
    NO_VECTOR,
    Precision,
    SearchResult,
    check_vectors,
)

EXACT_SLICE = 32_768  # vectors that an exact search compares while changes wait
TRAINING_ITERATIONS = 10
TRAINING_SEED = 1
EXACT_UP_TO = 2_000  # selected vectors that are compared one by one, without their lists
DECODED_UP_TO = 100  # as many take as long where each must be decoded


class ReadersWriterLock:
    """Many readers at once, or one writer. Not reentrant.

    Readers that arrive while a writer waits let it go first, and a writer waits only for the
    readers that had already started.
    """

    def __init__(self) -> None:
        self._entry = threading.Lock()  # held by a reader while it enters, by a writer to its end
        self._left = threading.Condition()
        self._readers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._entry, self._left:
            self._readers += 1
        try:
            yield
        finally:
            with self._left:
                self._readers -= 1
                self._left.notify()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._entry:
            with self._left:
                self._left.wait_for(lambda: self._readers == 0)
            yield


class FaissIndex:
    """Unit vectors under ids that the document store assigned. Safe to use from many threads.

    The vectors are divided into lists, of which a search may visit some only. An index that is not
    `exact` rounds the vectors that it is given, and every score is that of the rounded ones.

    Attributes:
        held: the ids of all vectors.
        sequence: of the last `change` that gave one; 0 before the first.
    """

    def __init__(self, index: faiss.IndexIVF) -> None:
        """Wrap a trained index; use `train_faiss_index` or `load_faiss_index`."""
        self._index = index
        self.held = IdSet(np.iinfo(np.int64).max, ivf.ids_in_lists(index))
        self.sequence = 0
        self._changing = threading.Lock()  # held by one change; taken before the other
        self._lock = ReadersWriterLock()

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return int(self._index.d)

    @property
    def exact(self) -> bool:
        """Whether vectors are held as they were given, in fp32."""
        return isinstance(self._index, faiss.IndexIVFFlat)

    @property
    def nlist(self) -> int:
        """How many lists, or cells, the vectors are divided into."""
        return int(self._index.nlist)

    def list_sizes(self) -> Int64:
        """Return how many vectors each list holds, Int64[nlist]."""
        with self._lock.reading():
            sizes: Int64 = get_invlist_sizes(self._index.invlists)
            return sizes

    def __len__(self) -> int:
        return len(self.held.ids)

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N], as the index holds them.

        NaN for those that are not there.
        """
        with ivf.openmp_threads_for(added=0), self._lock.reading():
            there = self.held.contains(ids)
            found: Float32 = self._index.reconstruct_batch(ids[there])
            if there.all():
                return found
            vectors = np.full((len(ids), self.dimension), np.nan, dtype=np.float32)
            vectors[there] = found
            return vectors

    def change(
        self,
        ids: Int64,
        vectors: Float32,
        *,
        removed: Int64 | None = None,
        sequence: int | None = None,
    ) -> None:
        """Add and remove vectors at once; no search sees a part of a change.

        Searches wait while lists change, not while the lists of new vectors are found.

        Args:
            ids: to add, Int64[N].
            vectors: to add, Float32[N, dimension].
            removed: ids to remove, Int64[M]; those that are not there are ignored.
            sequence: of the store that the index holds from now on; None leaves it as it is.

        Raises:
            ValueError: a wrong shape, a vector that is not finite, an id below 0, given twice or
                already there (to replace a vector, remove it first). Nothing was changed.
        """
        vectors = check_vectors(vectors, self.dimension)
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if ids.shape != (len(vectors),):
            raise ValueError(f"{len(vectors)} vectors need as many ids, not shape {ids.shape}")
        if len(np.unique(ids)) < len(ids) or ids.min(initial=0) < 0:
            raise ValueError("vector ids must be different and not below 0")
        gone = np.unique(ids[:0] if removed is None else removed)
        with self._changing, ivf.openmp_threads_for(len(ids)):
            if (known := self.held.contains(ids)).any():
                raise ValueError(f"vector id {ids[known].min()} is already there")
            if len(gone) and len(ids) and (dropped := np.isin(ids, gone)).any():
                ids, vectors = ids[~dropped], vectors[~dropped]
            gone = gone[self.held.contains(gone)]
            left = self.held.ids
            if len(gone):
                left = np.delete(left, np.searchsorted(left, gone))
            held = replace(self.held, ids=_sorted(left, np.sort(ids)))
            lists = ivf.nearest_lists(self._index, vectors)
            with self._lock.writing() if len(ids) or len(gone) else nullcontext():
                if len(ids):
                    add_preassigned(self._index, vectors, lists, ids)
                if len(gone):
                    # The hash table of the lists accepts this selector only.
                    self._index.remove_ids(faiss.IDSelectorArray(gone))
                self.held = held
                self.sequence = self.sequence if sequence is None else sequence

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query Float32[Q, dimension].

        The smaller the share of `among`, the more lists are visited, so that about as many vectors
        are compared as without it; a small selection is compared as a whole.

        Args:
            vectors: queries of unit norm.
            k: how many to find for each.
            nprobe: lists visited for each query; None for the default, more than there are for all:
                the nearest of the vectors as the index holds them.
            among: find no other vectors; of these k, whenever there are k.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        vectors = check_vectors(vectors, self.dimension)
        if k < 1 or (nprobe is not None and nprobe < 1):
            raise ValueError(f"k and nprobe must be at least 1, not {k} and {nprobe}")
        nprobe = default_nprobe(self.nlist) if nprobe is None else min(nprobe, self.nlist)
        with ivf.openmp_threads_for(added=0), self._lock.reading():
            if among is None:
                found = ivf.search_nearest_lists(self._index, vectors, k, nprobe)
            else:
                found = self._search_among(vectors, k, nprobe, among)
            return replace(found, sequence=self.sequence)

    def _search_among(self, vectors: Float32, k: int, nprobe: int, among: IdSet) -> SearchResult:
        """Search the lists for vectors of `among`."""
        most = among.most(len(self))
        if most <= (EXACT_UP_TO if self.exact else DECODED_UP_TO):
            known = self.held.ids if among.inverted else among.ids
            ids = known[among.contains(known) & self.held.contains(known)]
            return compare_all(vectors, ids, self._index.reconstruct_batch(ids), k)
        selector = ivf.selector_of(among)
        nprobe = min(self.nlist, -(-nprobe * len(self) // most))
        found = ivf.search_nearest_lists(self._index, vectors, k, nprobe, selector)
        if nprobe < self.nlist and (found.ids == NO_VECTOR).any():
            # The selected vectors lie in few lists, and not in those near a query.
            found = ivf.search_nearest_lists(self._index, vectors, k, self.nlist, selector)
        return found

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query by comparing it with all that the index holds.

        Changes, and the searches behind them, wait for a slice of `EXACT_SLICE` vectors.

        Returns:
            Float32[k], best first, -inf where there are fewer; the sequence at the end: it is
            that of the whole comparison if the index had it at the beginning.
        """
        best = np.full(k, -np.inf, dtype=np.float32)
        ids = self.held.ids
        for start in range(0, len(ids), EXACT_SLICE):
            some = replace(self.held, ids=ids[start : start + EXACT_SLICE])
            found = self.search(vector[np.newaxis], k, nprobe=self.nlist, among=some)
            best = np.sort(np.concatenate([best, found.scores[0]]))[: -k - 1 : -1]
        return best, self.sequence

    def save(self, file: BinaryIO) -> int:
        """Write the index to a file, and return the sequence that it holds.

        Changes wait until it is written; searches do not, unless a change waits before them.

        Raises:
            OSError: the file cannot be written whole.
        """
        # Through Python's file object: the writer of faiss does not report a failing close.
        with self._changing, self._lock.reading():
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))
            return self.sequence


def train_faiss_index(sample: Float32, nlist: int, precision: Precision = "fp32") -> FaissIndex:
    """Make an empty index whose lists are the cells of a k-means over `sample`.

    Args:
        sample: unit vectors Float32[N, dimension]; `SAMPLE_PER_LIST` a list are enough, and one
            list needs none.
        nlist: how many lists.
        precision: that more than one list hold vectors in.

    Raises:
        ValueError: a wrong shape, a vector that is not finite, or fewer vectors than lists.
    """
    sample = check_vectors(sample, sample.shape[-1])
    if not 1 <= nlist <= max(1, len(sample)):
        raise ValueError(f"{len(sample)} vectors cannot be divided into {nlist} lists")
    index = ivf.untrained_index(sample.shape[1], nlist, precision)
    if nlist > 1:
        index.cp.seed = TRAINING_SEED
        index.cp.niter = TRAINING_ITERATIONS
        index.cp.min_points_per_centroid = 1  # only silences a warning on stderr
        index.cp.max_points_per_centroid = max(SAMPLE_PER_LIST, -(-len(sample) // nlist))
        with ivf.openmp_threads_for(len(sample)):
            if not gpu.train(index, sample):
                index.train(sample)
    return FaissIndex(index)


def load_faiss_index(file: BinaryIO) -> FaissIndex:
    """Read an index that `FaissIndex.save` wrote; the caller has compared it with its checksum.

    Raises:
        OSError: the file cannot be read.
        RuntimeError: FAISS cannot read it.
    """
    return FaissIndex(faiss.read_index(faiss.PyCallbackIOReader(file.read)))


def _sorted(ids: Int64, new: Int64) -> Int64:
    """Return ids and new ones, both ascending, together."""
    both = np.concatenate([ids, new])
    return np.sort(both) if len(ids) and len(new) and new[0] < ids[-1] else both

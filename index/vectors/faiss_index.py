"""FAISS IVF behind the vector index port: one cell while small, many cells when large.

The only file that imports faiss. An index of one list needs no training and searches exactly, so
ids, deletes and files are the same code at every size.

Threads. FAISS spreads a call over OpenMP threads. A search here runs on the calling thread alone:
a second thread brings a single query nothing, every thread that ever searched would keep a team
of its own, and where cores are shared a team waits for its slowest member far longer than a
query takes. Who has many queries calls from many threads; searches do not wait for each other.
Training and large additions, which nobody waits for, use all cores.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.errors import SnapshotError
from index.id_set import IdSet
from index.vectors.rwlock import ReadersWriterLock
from index.vectors.vector_index import NO_VECTOR, SearchResult

ONE_LIST_BELOW = 5_000
SAMPLE_PER_LIST = 64
EXACT_SLICE = 32_768  # vectors that an exact search compares while changes wait
PARALLEL_FROM = 1_024  # vectors to add or to train with
TRAINING_ITERATIONS = 10
TRAINING_SEED = 1
EXACT_UP_TO = 2_000  # selected vectors that are compared one by one, without their lists
BITMAP_UP_TO = 2**24  # vector ids that a selection is written out for, a bit each

_DESERIALISATION_LIMITS = threading.Lock()


def choose_nlist(count: int) -> int:
    """Return how many lists an index of `count` vectors should have.

    One below `ONE_LIST_BELOW`, where scanning all of them takes less time than encoding a
    sentence. Above, 4 * sqrt(count), which balances choosing the lists against scanning them,
    but never less than 39 vectors a list, which k-means needs for a stable centre.
    """
    if count < ONE_LIST_BELOW:
        return 1
    return min(math.isqrt(16 * count), count // 39)


def default_nprobe(nlist: int) -> int:
    """Return how many of `nlist` lists a query visits when the caller does not say.

    2 * sqrt(nlist): the share of the vectors that is scanned falls as the index grows, while the
    neighbours lost at the borders of cells stay about as few. Encoding a long document costs many
    times a search, so this errs on the side of recall.
    """
    return min(nlist, 2 * math.isqrt(nlist))


class FaissIndex:
    """An IVF index of unit vectors under the cosine; the `VectorIndex` port in one process."""

    def __init__(self, index: faiss.IndexIVFFlat) -> None:
        """Wrap a trained index; use `train_faiss_index` or `load_faiss_index`."""
        self._index = index
        self._ids = _ids_in_lists(index)
        self._sequence = 0
        self._lock = ReadersWriterLock()

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return int(self._index.d)

    @property
    def nlist(self) -> int:
        """How many lists, or cells, the vectors are kept in."""
        return int(self._index.nlist)

    @property
    def sequence(self) -> int:
        """What the last `change` said that it reaches; 0 before the first."""
        return self._sequence

    def list_sizes(self) -> Int64:
        """Return how many vectors each list keeps, Int64[nlist]; all are alive."""
        with self._lock.reading():
            return _list_sizes(self._index)

    def __len__(self) -> int:
        return len(self._ids)

    def contains(self, ids: Int64) -> Bool:
        """Say for each of ids Int64[N] whether its vector is there."""
        with self._lock.reading():
            return np.fromiter((one in self._ids for one in ids.tolist()), np.bool_, len(ids))

    def ids(self) -> Int64:
        """Return the ids of all vectors that are there, ascending Int64[N]."""
        with self._lock.reading():
            return np.sort(np.fromiter(self._ids, np.int64, len(self._ids)))

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N], which must be there.

        Raises:
            ValueError: one is not.
        """
        with self._lock.reading():
            if not self._ids.issuperset(ids.tolist()):
                raise ValueError("a vector that is asked for is not there")
            return np.stack(
                [self._index.reconstruct(one) for one in ids.tolist()]
                or [np.empty((0, self.dimension), dtype=np.float32)]
            ).reshape(len(ids), self.dimension)

    def add(self, ids: Int64, vectors: Float32) -> None:
        """Add vectors Float32[N, dimension] under ids Int64[N]; all of them or none.

        Raises:
            ValueError: a wrong shape, a vector that is not finite, an id below 0, given twice or
                already there (to replace a vector, remove it first).
        """
        with self._changing(ids, vectors) as (ids, vectors):
            self._add(ids, vectors)

    def remove(self, ids: Int64) -> int:
        """Remove the vectors of ids Int64[N] and return how many of them were there."""
        with self._lock.writing():
            return self._remove(ids)

    def change(self, ids: Int64, vectors: Float32, removed: Int64, sequence: int) -> None:
        """Add and remove at once: no search sees a part of it, or another sequence than it holds.

        Args:
            ids: to add, Int64[N].
            vectors: to add, Float32[N, dimension].
            removed: ids to remove, Int64[M]; those that are not there are ignored.
            sequence: of the store that is reached by it.

        Raises:
            ValueError: as `add`; nothing was changed.
        """
        with self._changing(ids, vectors) as (ids, vectors):
            self._add(ids, vectors)
            self._remove(removed)
            self._sequence = sequence

    @contextmanager
    def _changing(self, ids: Int64, vectors: Float32) -> Iterator[tuple[Int64, Float32]]:
        """Check what is to be added, and hold the lock alone."""
        vectors = _checked_vectors(vectors, self.dimension)
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if ids.shape != (len(vectors),):
            raise ValueError(f"{len(vectors)} vectors need as many ids, not shape {ids.shape}")
        if len(np.unique(ids)) < len(ids) or ids.min(initial=0) < 0:
            raise ValueError("vector ids must be different and not below 0")
        with _openmp_threads_for(len(ids)), self._lock.writing():
            yield ids, vectors

    def _add(self, ids: Int64, vectors: Float32) -> None:
        new = set(ids.tolist())
        if known := self._ids & new:
            raise ValueError(f"vector id {min(known)} is already there")
        self._index.add_with_ids(vectors, ids)
        self._ids |= new

    def _remove(self, ids: Int64) -> int:
        known = self._ids.intersection(ids.tolist())
        # The hash table of the lists accepts this selector only.
        chosen = np.fromiter(known, np.int64, len(known))
        removed = int(self._index.remove_ids(faiss.IDSelectorArray(chosen)))
        self._ids -= known
        return removed

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query Float32[Q, dimension].

        Args:
            vectors: queries of unit norm.
            k: how many to find for each.
            nprobe: lists visited for each query; None takes `default_nprobe`, more than there
                are means all, which is exact.
            among: find no other vectors; of these k, whenever there are k. The smaller their
                share, the more lists are visited, so that about as many vectors are compared as
                without it; few vectors are compared all.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        vectors = _checked_vectors(vectors, self.dimension)
        nprobe = default_nprobe(self.nlist) if nprobe is None else min(nprobe, self.nlist)
        if k < 1 or nprobe < 1:
            raise ValueError(f"k and nprobe must be at least 1, not {k} and {nprobe}")
        with _openmp_threads_for(added=0), self._lock.reading():
            sequence = self._sequence
            if among is None:
                found = self._visit(vectors, k, faiss.SearchParametersIVF(nprobe=nprobe))
            else:
                found = self._search_among(vectors, k, nprobe, among)
        return replace(found, sequence=sequence)

    def _search_among(self, vectors: Float32, k: int, nprobe: int, among: IdSet) -> SearchResult:
        most = among.most(len(self._ids))
        if most <= EXACT_UP_TO:
            return self._compare(vectors, k, among)
        selector = _selector(among)
        nprobe = min(self.nlist, -(-nprobe * len(self._ids) // most))
        parameters = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
        found = self._visit(vectors, k, parameters)
        if nprobe < self.nlist and (found.ids == NO_VECTOR).any():
            # The selected vectors lie in few lists, and not in those near a query.
            every = faiss.SearchParametersIVF(nprobe=self.nlist, sel=selector)
            found = self._visit(vectors, k, every)
        return found

    def _visit(
        self, vectors: Float32, k: int, parameters: faiss.SearchParametersIVF
    ) -> SearchResult:
        # Parameters of this call: nprobe set on the index would be shared by all threads.
        scores, ids = self._index.search(vectors, k, params=parameters)
        scores[ids == NO_VECTOR] = -np.inf
        return SearchResult(ids, scores)

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query exactly, a slice of the lists at a time.

        Changes, and the searches that come after them, wait for `EXACT_SLICE` vectors and not for
        all.

        Args:
            vector: Float32[dimension], unit norm.
            k: how many.

        Returns:
            Float32[k], best first, -inf where there are fewer; the sequence of the last slice: it
            is that of the whole search if the index had it when the search began.
        """
        query = _checked_vectors(vector[np.newaxis], self.dimension)
        best = np.full(k, -np.inf, dtype=np.float32)
        sequence = self._sequence
        for lists in _slices(self.list_sizes(), EXACT_SLICE):
            with _openmp_threads_for(added=0), self._lock.reading():
                sequence = self._sequence
                found = _search_lists(self._index, query, lists, k)
            best = np.sort(np.concatenate([best, found]))[: -k - 1 : -1]
        return best, sequence

    def _compare(self, vectors: Float32, k: int, among: IdSet) -> SearchResult:
        """Compare every selected vector with every query."""
        if among.inverted:
            known = np.fromiter(self._ids, np.int64, len(self._ids))
            ids = np.sort(known[among.contains(known)])
        else:
            ids = among.ids[[one in self._ids for one in among.ids.tolist()]]
        found = SearchResult(
            np.full((len(vectors), k), NO_VECTOR, dtype=np.int64),
            np.full((len(vectors), k), -np.inf, dtype=np.float32),
        )
        if len(ids):
            scores = vectors @ self._index.reconstruct_batch(ids).T
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.ids[:, : order.shape[1]] = ids[order]
            found.scores[:, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
        return found

    def save(self, path: Path) -> None:
        """Write the index to one new file.

        Changes wait until it is written; searches do not, unless a change waits before them.

        Raises:
            OSError: the file cannot be written whole.
        """
        # Through Python's file object: faiss's own writer does not report a failing close.
        with path.open("xb") as file, self._lock.reading():
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))


def train_faiss_index(sample: Float32, nlist: int) -> FaissIndex:
    """Make an empty index whose lists are the cells of a k-means over `sample`.

    Args:
        sample: unit vectors Float32[N, dimension]; `SAMPLE_PER_LIST` a list are enough, and one
            list needs none.
        nlist: how many lists.

    Raises:
        ValueError: a wrong shape, a vector that is not finite, or fewer vectors than lists.
    """
    sample = _checked_vectors(sample, sample.shape[-1])
    if not 1 <= nlist <= max(1, len(sample)):
        raise ValueError(f"{len(sample)} vectors cannot be divided into {nlist} lists")
    dimension = sample.shape[1]
    quantizer = faiss.IndexFlatIP(dimension)
    if nlist == 1:
        quantizer.add(np.zeros((1, dimension), dtype=np.float32))
    index = faiss.IndexIVFFlat(quantizer, dimension, nlist, faiss.METRIC_INNER_PRODUCT)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)  # finds the list of an id to delete
    if nlist > 1:
        index.cp.seed = TRAINING_SEED
        index.cp.niter = TRAINING_ITERATIONS
        index.cp.min_points_per_centroid = 1  # only silences a warning on stderr
        index.cp.max_points_per_centroid = max(SAMPLE_PER_LIST, -(-len(sample) // nlist))
        with _openmp_threads_for(len(sample)):
            index.train(sample)
    return FaissIndex(index)


def load_faiss_index(path: Path) -> FaissIndex:
    """Read an index that `FaissIndex.save` wrote.

    Raises:
        SnapshotError: the file is missing, damaged or holds another kind of index.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file, _deserialisation_limited_to(size):
            index = faiss.read_index(faiss.PyCallbackIOReader(file.read))
    except (OSError, RuntimeError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error
    if (
        not isinstance(index, faiss.IndexIVFFlat)
        or index.metric_type != faiss.METRIC_INNER_PRODUCT
        or index.direct_map.type != faiss.DirectMap.Hashtable
    ):
        raise SnapshotError(f"{path}: this is not an index that Longmatch wrote")
    loaded = FaissIndex(index)
    if len(loaded) != index.ntotal:
        raise SnapshotError(f"{path}: the lists do not hold the vectors they should")
    return loaded


def _checked_vectors(vectors: Float32, dimension: int) -> Float32:
    checked = np.ascontiguousarray(vectors, dtype=np.float32)
    if checked.ndim != 2 or checked.shape[1] != dimension:
        raise ValueError(f"vectors must have shape (N, {dimension}), not {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError("a vector has a value that is not finite")
    return checked


def _list_sizes(index: faiss.IndexIVFFlat) -> Int64:
    """Return how many vectors each list keeps, Int64[nlist]."""
    sizes = (index.invlists.list_size(number) for number in range(index.nlist))
    return np.fromiter(sizes, np.int64, index.nlist)


def _slices(sizes: Int64, size: int) -> list[Int64]:
    """Divide lists of these sizes Int64[nlist] into runs of about `size` vectors."""
    run_of_list = (np.cumsum(sizes) - sizes) // size
    starts = np.flatnonzero(np.diff(run_of_list)) + 1
    return list(np.split(np.arange(len(sizes), dtype=np.int64), starts))


def _search_lists(index: faiss.IndexIVFFlat, query: Float32, lists: Int64, k: int) -> Float32:
    """Return the scores Float32[k] of the nearest vectors of these lists, -inf for none."""
    scores = np.empty((1, k), dtype=np.float32)
    ids = np.empty((1, k), dtype=np.int64)
    centroid_scores = np.zeros(len(lists), dtype=np.float32)
    arrays = (faiss.swig_ptr(one) for one in (lists, centroid_scores, scores, ids))
    parameters = faiss.SearchParametersIVF(nprobe=len(lists))
    index.search_preassigned_c(1, faiss.swig_ptr(query), k, *arrays, False, parameters)
    scores[ids == NO_VECTOR] = -np.inf
    found: Float32 = scores[0]
    return found


def _selector(among: IdSet) -> faiss.IDSelector:
    """Return what faiss asks of each vector that it meets in a list."""
    end = among.end if among.inverted else int(among.ids.max(initial=-1)) + 1
    if end <= BITMAP_UP_TO:
        bits = np.full(end, among.inverted)
        bits[among.ids] = not among.inverted
        return faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
    listed = faiss.IDSelectorBatch(among.ids)
    if not among.inverted:
        return listed
    return faiss.IDSelectorAnd(faiss.IDSelectorRange(0, among.end), faiss.IDSelectorNot(listed))


def _ids_in_lists(index: faiss.IndexIVFFlat) -> set[int]:
    """Return the ids of all vectors."""
    ids: set[int] = set()
    for number in range(index.nlist):
        if size := index.invlists.list_size(number):
            ids.update(faiss.rev_swig_ptr(index.invlists.get_ids(number), size).tolist())
    return ids


@contextmanager
def _openmp_threads_for(added: int) -> Iterator[None]:
    # OpenMP keeps this number for each calling thread, so callers do not disturb each other.
    before = faiss.omp_get_max_threads()
    if added < PARALLEL_FROM:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextmanager
def _deserialisation_limited_to(size: int) -> Iterator[None]:
    # Nothing in a file is larger than the file: a damaged length must not become an allocation.
    # faiss keeps the limits for the whole process.
    with _DESERIALISATION_LIMITS:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(size)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)

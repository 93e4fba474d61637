"""FAISS IVF behind the vector index port: one cell while small, many cells when large.

The only module that imports faiss. An index of one list needs no training and searches exactly, so
ids, deletes and files are the same code at every size.

Precision. Many lists hold vectors as fp32, as fp16, or as int8: 8-bit scalar quantisation, for
which training finds the range of each dimension. One list holds fp32 whatever the precision: it
has no training that could find ranges, and few vectors.

Threads. FAISS spreads a call over OpenMP threads. A search here runs on the calling thread alone:
a second thread gains nothing for a single query, every thread that ever searched would keep a
team of its own, and where cores are shared a team waits for its slowest member far longer than a
query takes. Many queries come from many threads, which do not wait for each other. Training and
large additions, which no request waits for, use all cores.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.errors import SnapshotError
from index.id_set import IdSet
from index.vectors.exact_index import compare_all
from index.vectors.lists import SAMPLE_PER_LIST, default_nprobe
from index.vectors.rwlock import ReadersWriterLock
from index.vectors.vector_index import (
    NO_VECTOR,
    Precision,
    SearchResult,
    check_additions,
    check_queries,
    check_vectors,
)

EXACT_SLICE = 32_768  # vectors that an exact search compares while changes wait
PARALLEL_FROM = 1_024  # vectors to add or to train with
TRAINING_ITERATIONS = 10
TRAINING_SEED = 1
EXACT_UP_TO = 2_000  # selected vectors that are compared one by one, without their lists
DECODED_UP_TO = 100  # as many take as long where each must be decoded
BITMAP_UP_TO = 2**24  # vector ids that a selection is written out for, a bit each

# Each dimension has one range for all lists: relative to its centroid, as FAISS does by default, a
# vector has no smaller error, as lists overlap.
_QUANTIZERS: Mapping[Precision, int] = {
    "fp16": faiss.ScalarQuantizer.QT_fp16,
    "int8": faiss.ScalarQuantizer.QT_8bit,
}
# Ranges are wider than those of the sample by this share of them, at both ends: vectors that come
# later may lie outside, and are clipped there.
_RANGE_MARGIN = 0.1

_DESERIALISATION_LIMITS = threading.Lock()


class FaissIndex:
    """An IVF index of unit vectors under the cosine; the `VectorIndex` port in one process."""

    def __init__(self, index: faiss.IndexIVF) -> None:
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
    def exact(self) -> bool:
        """Whether vectors are held as they were given, in fp32."""
        return isinstance(self._index, faiss.IndexIVFFlat)

    @property
    def nlist(self) -> int:
        """How many lists, or cells, the vectors are divided into."""
        return int(self._index.nlist)

    @property
    def sequence(self) -> int:
        """The sequence of the last `change` that gave one; 0 before the first."""
        return self._sequence

    def list_sizes(self) -> Int64:
        """Return how many vectors each list holds, Int64[nlist]."""
        with self._lock.reading():
            return _list_sizes(self._index)

    def __len__(self) -> int:
        return len(self._ids)

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[N] whether its vector is there."""
        with self._lock.reading():
            return self._known(ids)

    def ids(self) -> Int64:
        """Return the ids of all vectors, ascending Int64[N]."""
        with self._lock.reading():
            return np.sort(np.fromiter(self._ids, np.int64, len(self._ids)))

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N]; see `VectorIndex.vectors`."""
        with _openmp_threads_for(added=0), self._lock.reading():
            if self._ids.issuperset(ids.tolist()):
                return self._reconstruct(ids)
            known = self._known(ids)
            vectors = np.full((len(ids), self.dimension), np.nan, dtype=np.float32)
            vectors[known] = self._reconstruct(ids[known])
        return vectors

    def _known(self, ids: Int64) -> Bool:
        return np.fromiter((one in self._ids for one in ids.tolist()), np.bool_, len(ids))

    def _reconstruct(self, ids: Int64) -> Float32:
        if not len(ids):
            return np.empty((0, self.dimension), dtype=np.float32)
        found: Float32 = self._index.reconstruct_batch(ids)
        return found

    def change(
        self,
        ids: Int64,
        vectors: Float32,
        *,
        removed: Int64 | None = None,
        sequence: int | None = None,
    ) -> None:
        """Add and remove vectors at once; see `VectorIndex.change`.

        Raises:
            ValueError: as `VectorIndex.change`; nothing was changed.
        """
        ids, vectors = check_additions(ids, vectors, self.dimension)
        with _openmp_threads_for(len(ids)), self._lock.writing():
            new = set(ids.tolist())
            if known := self._ids & new:
                raise ValueError(f"vector id {min(known)} is already there")
            self._index.add_with_ids(vectors, ids)
            self._ids |= new
            if removed is not None:
                self._remove(removed)
            if sequence is not None:
                self._sequence = sequence

    def _remove(self, ids: Int64) -> None:
        known = self._ids.intersection(ids.tolist())
        # The hash table of the lists accepts this selector only.
        chosen = np.fromiter(known, np.int64, len(known))
        self._index.remove_ids(faiss.IDSelectorArray(chosen))
        self._ids -= known

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query; see `VectorIndex.search`.

        The smaller the share of `among`, the more lists are visited, so that about as many vectors
        are compared as without it; a small selection is compared as a whole.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        vectors = check_queries(vectors, self.dimension, k, nprobe)
        nprobe = default_nprobe(self.nlist) if nprobe is None else min(nprobe, self.nlist)
        with _openmp_threads_for(added=0), self._lock.reading():
            sequence = self._sequence
            if among is None:
                found = self._visit(vectors, k, faiss.SearchParametersIVF(nprobe=nprobe))
            else:
                found = self._search_among(vectors, k, nprobe, among)
        return replace(found, sequence=sequence)

    def _search_among(self, vectors: Float32, k: int, nprobe: int, among: IdSet) -> SearchResult:
        most = among.most(len(self._ids))
        if most <= (EXACT_UP_TO if self.exact else DECODED_UP_TO):
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
        """Score the k nearest vectors of one query exactly; see `VectorIndex.exact_scores`.

        Changes, and the searches behind them, wait for a slice of `EXACT_SLICE` vectors.
        """
        query = check_vectors(vector[np.newaxis], self.dimension)
        best = np.full(k, -np.inf, dtype=np.float32)
        sequence = self._sequence
        for lists in _slices(self.list_sizes(), EXACT_SLICE):
            with _openmp_threads_for(added=0), self._lock.reading():
                sequence = self._sequence
                found = _search_lists(self._index, query, lists, k)
            best = np.sort(np.concatenate([best, found]))[: -k - 1 : -1]
        return best, sequence

    def _compare(self, queries: Float32, k: int, among: IdSet) -> SearchResult:
        """Compare every selected vector with every query."""
        if among.inverted:
            known = np.fromiter(self._ids, np.int64, len(self._ids))
            ids = np.sort(known[among.contains(known)])
        else:
            ids = among.ids[[one in self._ids for one in among.ids.tolist()]]
        return compare_all(queries, ids, self._reconstruct(ids), k)

    def save(self, path: Path) -> None:
        """Write the index to one new file.

        Changes wait until it is written; searches do not, unless a change waits before them.

        Raises:
            OSError: the file cannot be written whole.
        """
        # Through Python's file object: faiss's own writer does not report a failing close.
        with path.open("xb") as file, self._lock.reading():
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))


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
    dimension = sample.shape[1]
    quantizer = faiss.IndexFlatIP(dimension)
    if nlist == 1:
        quantizer.add(np.zeros((1, dimension), dtype=np.float32))
    index = _untrained_index(quantizer, nlist, precision)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)  # finds the list of an id to delete
    if nlist > 1:
        index.cp.seed = TRAINING_SEED
        index.cp.niter = TRAINING_ITERATIONS
        index.cp.min_points_per_centroid = 1  # only silences a warning on stderr
        index.cp.max_points_per_centroid = max(SAMPLE_PER_LIST, -(-len(sample) // nlist))
        with _openmp_threads_for(len(sample)):
            index.train(sample)
    return FaissIndex(index)


def _untrained_index(
    quantizer: faiss.IndexFlatIP, nlist: int, precision: Precision
) -> faiss.IndexIVF:
    metric = faiss.METRIC_INNER_PRODUCT
    if nlist == 1 or precision == "fp32":
        return faiss.IndexIVFFlat(quantizer, quantizer.d, nlist, metric)
    kind = _QUANTIZERS[precision]
    index = faiss.IndexIVFScalarQuantizer(quantizer, quantizer.d, nlist, kind, metric, False)
    index.sq.rangestat_arg = _RANGE_MARGIN
    return index


def load_faiss_index(path: Path, precision: Precision = "fp32") -> FaissIndex:
    """Read an index that `FaissIndex.save` wrote.

    Raises:
        SnapshotError: the file is missing, damaged or holds another kind of index, or one of
            another precision.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file, _deserialisation_limited_to(size):
            index = faiss.read_index(faiss.PyCallbackIOReader(file.read))
    except (OSError, RuntimeError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error
    if (
        not isinstance(index, faiss.IndexIVF)
        or index.metric_type != faiss.METRIC_INNER_PRODUCT
        or index.direct_map.type != faiss.DirectMap.Hashtable
    ):
        raise SnapshotError(f"{path}: this is not an index that Longmatch wrote")
    if _precision_of(index) != ("fp32" if index.nlist == 1 else precision):
        raise SnapshotError(f"{path}: does not hold vectors in {precision}")
    loaded = FaissIndex(index)
    if len(loaded) != index.ntotal:
        raise SnapshotError(f"{path}: the lists do not hold the vectors they should")
    return loaded


def _precision_of(index: faiss.IndexIVF) -> Precision | None:
    """Return the format of the vectors; None for one that Longmatch does not use."""
    if isinstance(index, faiss.IndexIVFFlat):
        return "fp32"
    if not isinstance(index, faiss.IndexIVFScalarQuantizer):
        return None
    return next((name for name, kind in _QUANTIZERS.items() if kind == index.sq.qtype), None)


def _list_sizes(index: faiss.IndexIVF) -> Int64:
    """Return how many vectors each list keeps, Int64[nlist]."""
    sizes = (index.invlists.list_size(number) for number in range(index.nlist))
    return np.fromiter(sizes, np.int64, index.nlist)


def _slices(sizes: Int64, size: int) -> list[Int64]:
    """Divide lists of these sizes Int64[nlist] into runs of about `size` vectors."""
    run_of_list = (np.cumsum(sizes) - sizes) // size
    starts = np.flatnonzero(np.diff(run_of_list)) + 1
    return list(np.split(np.arange(len(sizes), dtype=np.int64), starts))


def _search_lists(index: faiss.IndexIVF, query: Float32, lists: Int64, k: int) -> Float32:
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


def _ids_in_lists(index: faiss.IndexIVF) -> set[int]:
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

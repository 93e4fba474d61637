"""Steps on objects of FAISS: the inverted lists of an index, their formats and selectors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import faiss
import numpy as np
from faiss.contrib.inspect_tools import get_invlist_sizes

from encoder.arrays import Bool, Float32, Int64
from index.id_set import IdSet
from index.vectors.faiss import gpu
from index.vectors.faiss.exact import nearest
from index.vectors.vector_index import NO_VECTOR, Precision, SearchResult

PARALLEL_FROM = 1_024  # vectors to add or to train with

# Each dimension has one range for all lists: relative to its centroid, as FAISS does by default, a
# vector has no smaller error, as lists overlap.
_QUANTIZERS: Mapping[Precision, int] = {
    "fp16": faiss.ScalarQuantizer.QT_fp16,
    "int8": faiss.ScalarQuantizer.QT_8bit,
}
# Ranges are wider than those of the sample by this share of them, at both ends: vectors that come
# later may lie outside, and are clipped there.
_RANGE_MARGIN = 0.1
# Numbers in a batch of vectors from which FAISS compares it with the centroids by a matrix product.
# By default from eight times as many: 64 vectors of 1,536 dimensions then took 5.4 ms, not 2.2.
faiss.cvar.distance_compute_blas_threshold = 16_384


def untrained_index(dimension: int, nlist: int, precision: Precision) -> faiss.IndexIVF:
    """Return an index without vectors, and without centroids unless there is one list."""
    metric = faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlatIP(dimension)
    if nlist == 1:
        quantizer.add(np.zeros((1, dimension), dtype=np.float32))
    if nlist == 1 or precision == "fp32":
        index = faiss.IndexIVFFlat(quantizer, dimension, nlist, metric)
    else:
        kind = _QUANTIZERS[precision]
        index = faiss.IndexIVFScalarQuantizer(quantizer, dimension, nlist, kind, metric, False)
        index.sq.rangestat_arg = _RANGE_MARGIN
    index.set_direct_map_type(faiss.DirectMap.Hashtable)  # finds the list of an id to delete
    return index


def neighbours_of(vectors: Float32, k: int) -> Int64:
    """Return the rows of the k nearest other vectors of each of vectors [N, D], Int64[N, k]."""
    found = nearest(vectors, vectors, k + 1)[1]
    # Itself is among them, except where as many are equal to it: then the last is left out.
    others = found != np.arange(len(vectors))[:, None]
    others[others.all(axis=1), -1] = False
    rows: Int64 = found[others].reshape(len(vectors), k)
    return rows


def clusters_of(points: Float32, number: int) -> tuple[Float32, Int64]:
    """Divide points [N, D] by k-means: centres Float32[number, D], and that of each, Int64[N]."""
    kmeans = faiss.Kmeans(points.shape[1], number, niter=20, min_points_per_centroid=1)
    kmeans.cp.max_points_per_centroid = len(points)
    kmeans.train(points)
    return kmeans.centroids, kmeans.assign(points)[1]


def ids_in_lists(index: faiss.IndexIVF) -> Int64:
    """Return the ids of all vectors, ascending and different."""
    sizes = enumerate(get_invlist_sizes(index.invlists).tolist())
    lists = [faiss.rev_swig_ptr(index.invlists.get_ids(n), size) for n, size in sizes if size]
    ids = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *lists]))
    different: Int64 = ids[np.diff(ids, prepend=-1) > 0]  # np.unique makes a hash table
    return different


def nearest_lists(index: faiss.IndexIVF, vectors: Float32) -> Int64:
    """Return the list of each vector Float32[N, dimension], Int64[N]."""
    if gpu.is_worth_it(len(vectors), index.nlist):
        centroids = index.quantizer.reconstruct_n(0, index.nlist)
        return nearest(vectors, centroids, 1)[1].reshape(-1)
    lists: Int64 = index.quantizer.assign(vectors, 1).reshape(-1)
    return lists


def search_nearest_lists(
    index: faiss.IndexIVF,
    queries: Float32,
    k: int,
    nprobe: int,
    selector: faiss.IDSelector | None = None,
) -> SearchResult:
    """Search the `nprobe` nearest lists of each query Float32[Q, dimension].

    Args:
        index: to search.
        queries: unit vectors.
        k: how many to find for each.
        nprobe: how many lists, all at most.
        selector: find no other vectors.
    """
    # Parameters of this call: nprobe set on the index would be shared by all threads.
    parameters = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
    scores, ids = index.search(queries, k, params=parameters)
    scores[ids == NO_VECTOR] = -np.inf
    return SearchResult(ids, scores)


def selector_of(among: IdSet) -> faiss.IDSelector:
    """Return what FAISS asks of each vector that it meets in a list."""
    bits: Bool = np.full(among.end if among.inverted else among.ids.max() + 1, among.inverted)
    bits[among.ids] = not among.inverted
    return faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))


@contextmanager
def openmp_threads_for(added: int) -> Iterator[None]:
    """Let FAISS use all cores inside the block if so many vectors are added, otherwise one."""
    # OpenMP keeps this number for each calling thread, so callers do not disturb each other.
    before = faiss.omp_get_max_threads()
    if added < PARALLEL_FROM:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)

"""Exact search of many vectors at a time: on a GPU where that is worth the copies, else on the CPU.

What evaluation, the recall of an index and all pairs of a corpus take. A request compares too few
vectors to be worth copying them to a GPU, and stays on the CPU.
"""

import faiss
import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.faiss import gpu
from index.vectors.vector_index import NO_VECTOR, SearchResult


def nearest(queries: Float32, vectors: Float32, k: int) -> tuple[Float32, Int64]:
    """Find the k vectors of the largest inner product with each query, best first.

    Args:
        queries: Float32[Q, dimension].
        vectors: Float32[N, dimension], k or more.
        k: at least 1.

    Returns:
        Products Float32[Q, k] and rows of `vectors` Int64[Q, k].
    """
    both = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
    metric = faiss.METRIC_INNER_PRODUCT
    found: tuple[Float32, Int64] | None = None
    if k <= gpu.MOST_NEIGHBOURS and gpu.is_worth_it(len(queries), len(vectors)):
        limits = {"vectorsMemoryLimit": gpu.VECTOR_BYTES, "queriesMemoryLimit": gpu.QUERY_BYTES}
        found = gpu.run(lambda it: faiss.knn_gpu(it, *both, k, metric=metric, device=0, **limits))
    return faiss.knn(*both, k, metric=metric) if found is None else found


def products(queries: Float32, vectors: Float32) -> Float32:
    """Return all inner products Float32[Q, N] of queries [Q, dimension] and vectors [N, dimension].

    They are held at once: the caller divides what is too much.
    """
    found: Float32 | None = None
    if gpu.is_worth_it(len(queries), len(vectors)):
        both = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
        metric = faiss.METRIC_INNER_PRODUCT
        found = gpu.run(lambda it: faiss.pairwise_distance_gpu(it, *both, metric=metric, device=0))
    return queries @ vectors.T if found is None else found


def compare_all(queries: Float32, ids: Int64, vectors: Float32, k: int) -> SearchResult:
    """Find the k nearest of all vectors Float32[N, D] under ids Int64[N] for each query [Q, D]."""
    found = SearchResult(
        np.full((len(queries), k), NO_VECTOR, dtype=np.int64),
        np.full((len(queries), k), -np.inf, dtype=np.float32),
    )
    best = min(k, len(ids))
    if best and len(queries):
        scores, rows = nearest(queries, vectors, best)
        found.ids[:, :best] = ids[rows]
        found.scores[:, :best] = scores
    return found

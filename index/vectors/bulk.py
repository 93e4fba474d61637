"""Exact search of many vectors at a time: on a GPU where there is one, else with NumPy.

What evaluation, the recall of an index and all pairs of a corpus take. A request compares too few
vectors to be worth copying them to a GPU, and stays on the CPU.
"""

from collections.abc import Iterator

import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.faiss import gpu
from index.vectors.vector_index import NO_VECTOR, SearchResult

_SCORES_A_CALL = 2**24  # 64 MiB


def nearest(queries: Float32, vectors: Float32, k: int) -> tuple[Float32, Int64]:
    """Find the k vectors of the largest inner product with each query, best first.

    Args:
        queries: Float32[Q, dimension].
        vectors: Float32[N, dimension], k or more.
        k: at least 1.

    Returns:
        Products Float32[Q, k] and rows of `vectors` Int64[Q, k].
    """
    found = gpu.nearest(queries, vectors, k)
    if found is not None:
        return found
    scores = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    for part in _parts(len(queries), len(vectors)):
        every = queries[part] @ vectors.T
        best = np.argpartition(-every, k - 1, axis=1)[:, :k]
        best_scores = np.take_along_axis(every, best, axis=1)
        order = np.argsort(-best_scores, axis=1)
        rows[part] = np.take_along_axis(best, order, axis=1)
        scores[part] = np.take_along_axis(best_scores, order, axis=1)
    return scores, rows


def products(queries: Float32, vectors: Float32) -> Float32:
    """Return all inner products Float32[Q, N] of queries [Q, dimension] and vectors [N, dimension].

    They are held at once: the caller divides what is too much.
    """
    found = gpu.products(queries, vectors)
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


def _parts(queries: int, vectors: int) -> Iterator[slice]:
    """Divide queries so that the scores of a part take bounded memory."""
    size = max(1, _SCORES_A_CALL // max(1, vectors))
    for start in range(0, queries, size):
        yield slice(start, start + size)

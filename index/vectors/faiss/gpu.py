"""FAISS on a GPU: the k-means of the lists, and exact search of many vectors at a time.

Only a FAISS built for GPUs has these functions. Where there is no GPU, where it is turned off,
where a call is too small to be worth the copies, and where the GPU fails (its memory is full, say),
they return None or False, and the caller computes on the CPU. FAISS's resources of a GPU are not
made for concurrent use, so one thread owns them.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import faiss
import numpy as np

from encoder.arrays import Float32, Int64

# What a call must have to be worth the copies: inner products, and vectors on either side, as each
# vector that is copied is compared with all of the other side.
LEAST_PRODUCTS = 2**18
LEAST_VECTORS = 128
MOST_NEIGHBOURS = 2_048  # that FAISS finds on a GPU
VECTOR_BYTES = 2**32  # of vectors that an exact search has on the GPU at a time
QUERY_BYTES = 2**30  # of queries, with their results

T = TypeVar("T")
_log = logging.getLogger(__name__)


class ResourceThread:
    """A thread that owns resources, which it makes when they are first needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss-gpu")

    def run(self, work: Callable[[Any], T]) -> T | None:
        """Give the resources to `work` on the thread; return what it does, None if it fails."""

        def owned() -> T:
            if self._made is None:
                self._made = self._make()
            return work(self._made)

        try:
            return self._thread.submit(owned).result()
        except RuntimeError as error:  # of FAISS, also for the errors of CUDA
            _log.warning("FAISS failed on the GPU, and goes on on the CPU: %s", error)
            return None


_allowed = threading.Event()
_allowed.set()


def number_of_gpus() -> int:
    """Return how many GPUs FAISS can use: 0 where it is built for a CPU."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def allow_gpu(allowed: bool) -> None:
    """Let this process use a GPU, as it does by default, or not."""
    if allowed:
        _allowed.set()
    else:
        _allowed.clear()


def gpu_is_used() -> bool:
    """Whether calls that are large enough go to a GPU."""
    return _allowed.is_set() and number_of_gpus() > 0


@cache
def _gpu() -> ResourceThread:
    return ResourceThread(lambda: faiss.StandardGpuResources())


def train(index: faiss.IndexIVF, sample: Float32) -> bool:
    """Train the lists of an index on a GPU; return whether that was done."""
    if not gpu_is_used():
        return False

    def work(resources: Any) -> bool:
        flat = faiss.IndexFlatIP(index.d)
        train_with(index, sample, faiss.index_cpu_to_gpu(resources, 0, flat))
        return True

    return bool(_gpu().run(work))


def train_with(index: faiss.IndexIVF, sample: Float32, assigner: faiss.Index) -> None:
    """Train an index; an empty index of the centroids assigns vectors to them in the meantime.

    Args:
        index: not trained yet.
        sample: vectors Float32[N, dimension].
        assigner: exact, of the same measure; on any device.
    """
    index.clustering_index = assigner
    try:
        index.train(sample)
    finally:
        index.clustering_index = None


def nearest(queries: Float32, vectors: Float32, k: int) -> tuple[Float32, Int64] | None:
    """Find the k vectors of the largest inner product with each query, best first.

    Args:
        queries: Float32[Q, dimension].
        vectors: Float32[N, dimension], k or more.
        k: more than `MOST_NEIGHBOURS` are not found on a GPU.

    Returns:
        Products Float32[Q, k] and rows Int64[Q, k].
    """
    if k > MOST_NEIGHBOURS or not _worth_it(queries, vectors):
        return None

    def work(resources: Any) -> tuple[Float32, Int64]:
        found: tuple[Float32, Int64] = faiss.knn_gpu(
            resources,
            np.ascontiguousarray(queries),
            np.ascontiguousarray(vectors),
            k,
            metric=faiss.METRIC_INNER_PRODUCT,
            device=0,
            vectorsMemoryLimit=VECTOR_BYTES,
            queriesMemoryLimit=QUERY_BYTES,
        )
        return found

    return _gpu().run(work)


def products(queries: Float32, vectors: Float32) -> Float32 | None:
    """Return all inner products Float32[Q, N] of queries [Q, dimension] and vectors."""
    if not _worth_it(queries, vectors):
        return None

    def work(resources: Any) -> Float32:
        found: Float32 = faiss.pairwise_distance_gpu(
            resources,
            np.ascontiguousarray(queries),
            np.ascontiguousarray(vectors),
            metric=faiss.METRIC_INNER_PRODUCT,
            device=0,
        )
        return found

    return _gpu().run(work)


def _worth_it(queries: Float32, vectors: Float32) -> bool:
    fewer, more = sorted((len(queries), len(vectors)))
    return fewer >= LEAST_VECTORS and fewer * more >= LEAST_PRODUCTS and gpu_is_used()

"""FAISS on a GPU: whether it is used, who owns it, and the k-means of the lists.

Only a FAISS built for GPUs can use one. Where there is none, where a call is too small to be worth
the copies, and where the GPU fails (its memory is full, say), the caller computes on the CPU.
FAISS's resources of a GPU are not made for concurrent use, so one thread owns them.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import faiss

from encoder.arrays import Float32

# What a call must have to be worth the copies: inner products, and vectors on either side, as each
# vector that is copied is compared with all of the other side.
LEAST_PRODUCTS = 2**18
LEAST_VECTORS = 128
MOST_NEIGHBOURS = 2_048  # that FAISS finds on a GPU
VECTOR_BYTES = 2**32  # of vectors that an exact search has on the GPU at a time
QUERY_BYTES = 2**30  # of queries, with their results

T = TypeVar("T")
_log = logging.getLogger(__name__)


def gpu_is_used() -> bool:
    """Whether calls that are large enough go to a GPU: not where FAISS is built for a CPU."""
    return hasattr(faiss, "StandardGpuResources") and bool(faiss.get_num_gpus())


_thread = ThreadPoolExecutor(1, "faiss-gpu")


@cache  # on the thread that owns them
def _resources() -> Any:
    return faiss.StandardGpuResources()


def run(work: Callable[[Any], T]) -> T | None:
    """Give FAISS's resources of the GPU to `work`; return what it does, None if it fails."""
    try:
        return _thread.submit(lambda: work(_resources())).result()
    except RuntimeError as error:  # of FAISS, also for the errors of CUDA
        _log.warning("FAISS failed on the GPU, and goes on on the CPU: %s", error)
        return None


def train(index: faiss.IndexIVF, sample: Float32) -> bool:
    """Train an index with vectors Float32[N, dimension] on a GPU; return whether that was done."""

    def work(resources: Any) -> bool:
        # An empty index of the centroids assigns vectors to them in the meantime.
        index.clustering_index = faiss.index_cpu_to_gpu(resources, 0, faiss.IndexFlatIP(index.d))
        try:
            index.train(sample)
        finally:
            index.clustering_index = None
        return True

    return gpu_is_used() and bool(run(work))


def is_worth_it(queries: int, vectors: int) -> bool:
    """Whether a comparison of so many queries with so many vectors goes to a GPU."""
    fewer, more = sorted((queries, vectors))
    return fewer >= LEAST_VECTORS and fewer * more >= LEAST_PRODUCTS and gpu_is_used()

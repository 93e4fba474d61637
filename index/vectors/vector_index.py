"""What searches of vectors share: results, the precisions of an index, and checks of input."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoder.arrays import Float32, Int64

NO_VECTOR = -1

Precision = Literal["fp32", "fp16", "int8"]  # the number format that vectors are held in
DEFAULT_PRECISION: Precision = "int8"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The nearest vectors of each query, best first.

    Attributes:
        ids: Int64[Q, k], vector ids; `NO_VECTOR` where fewer than k were found.
        scores: Float32[Q, k], cosines with the vectors as the index holds them; -inf where fewer
            than k were found.
        sequence: the store's sequence that the index held while it was searched.
        generation: of the index that was searched; 0 where it has none.
    """

    ids: Int64
    scores: Float32
    sequence: int = 0
    generation: int = 0


def check_vectors(vectors: Float32, dimension: int) -> Float32:
    """Return vectors as contiguous Float32[N, dimension].

    Raises:
        ValueError: a wrong shape, or a vector that is not finite.
    """
    checked = np.ascontiguousarray(vectors, dtype=np.float32)
    if checked.ndim != 2 or checked.shape[1] != dimension:
        raise ValueError(f"vectors must have shape (N, {dimension}), not {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError("a vector has a value that is not finite")
    return checked


def check_additions(ids: Int64, vectors: Float32, dimension: int) -> tuple[Int64, Float32]:
    """Return contiguous ids Int64[N] and vectors Float32[N, dimension] that can be added.

    Raises:
        ValueError: a wrong shape, a vector that is not finite, an id below 0 or given twice.
    """
    vectors = check_vectors(vectors, dimension)
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    if ids.shape != (len(vectors),):
        raise ValueError(f"{len(vectors)} vectors need as many ids, not shape {ids.shape}")
    if len(np.unique(ids)) < len(ids) or ids.min(initial=0) < 0:
        raise ValueError("vector ids must be different and not below 0")
    return ids, vectors


def check_queries(vectors: Float32, dimension: int, k: int, nprobe: int | None) -> Float32:
    """Return queries as contiguous Float32[Q, dimension].

    Raises:
        ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
    """
    vectors = check_vectors(vectors, dimension)
    if k < 1 or (nprobe is not None and nprobe < 1):
        raise ValueError(f"k and nprobe must be at least 1, not {k} and {nprobe}")
    return vectors

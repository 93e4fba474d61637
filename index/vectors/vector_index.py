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

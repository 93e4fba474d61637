"""Recall against exact search: the share of the exact neighbours that an index finds."""

import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.exact_index import ExactIndex
from index.vectors.vector_index import VectorIndex

NEIGHBOURS = 10  # recall is measured at so many
_TOLERANCE = 1e-5  # the same cosine, summed in two ways, differs by up to this


class HeldOutQueries:
    """Vectors that an index was not trained with, and their exact neighbours among all others.

    The neighbours come from exact search over what `compare_with` is given, so a vector that an
    index has lost counts against it.
    """

    def __init__(self, ids: Int64, vectors: Float32) -> None:
        """Begin with the held-out ids Int64[Q] and vectors Float32[Q, dimension]."""
        self.ids = ids
        self.vectors = vectors
        self._exact = np.full((len(ids), NEIGHBOURS), -np.inf, dtype=np.float32)

    def compare_with(self, ids: Int64, vectors: Float32) -> None:
        """Compare with vectors Float32[N, dimension] under ids Int64[N], each given once."""
        if not len(self.ids):
            return
        both = np.concatenate([self._exact, self._neighbours(ExactIndex(ids, vectors))], axis=1)
        self._exact = -np.sort(-both, axis=1)[:, :NEIGHBOURS]

    def recall(self, index: VectorIndex, nprobe: int) -> float:
        """Return the recall@10 of an index; 1.0 where there are no neighbours to find."""
        if not len(self.ids):
            return 1.0
        return share_found(self._neighbours(index, nprobe), self._exact)

    def _neighbours(self, index: VectorIndex, nprobe: int | None = None) -> Float32:
        """Return the scores Float32[Q, 10] of the neighbours, without the queries themselves."""
        found = index.search(self.vectors, NEIGHBOURS + 1, nprobe=nprobe)
        scores = np.where(found.ids == self.ids[:, None], -np.inf, found.scores)
        best: Float32 = -np.sort(-scores, axis=1)[:, :NEIGHBOURS]
        return best


def share_found(found: Float32, exact: Float32) -> float:
    """Return recall@k: the share of the exact neighbours that are matched by what was found.

    By score, so that of equal neighbours it does not matter which was found.

    Args:
        found: scores Float32[Q, k].
        exact: scores Float32[Q, k] in any order; -inf where there are fewer neighbours.
    """
    there = np.isfinite(exact).sum(axis=1)
    worst = np.where(np.isfinite(exact), exact, np.inf).min(axis=1, initial=np.inf)
    hits = np.minimum((found >= worst[:, None] - _TOLERANCE).sum(axis=1), there)
    return float(hits.sum() / there.sum()) if there.any() else 1.0

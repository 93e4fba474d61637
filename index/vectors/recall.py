"""Recall against exact search: the share of the exact neighbours that an index finds.

What was found counts by its exact cosine, whatever precision the index holds vectors in.
"""

from collections.abc import Callable

import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.faiss.exact import compare_all
from index.vectors.faiss.faiss_index import FaissIndex
from index.vectors.vector_index import NO_VECTOR

NEIGHBOURS = 10  # recall is measured at so many
_TOLERANCE = 1e-5  # the same cosine, summed in two ways, differs by up to this

ReadVectors = Callable[[Int64], tuple[Int64, Float32]]
"""Ids Int64[N], ascending -> those that exist, ascending, and their vectors as they were given."""


class HeldOutQueries:
    """Vectors that an index was not trained with, and their exact neighbours among all others.

    The neighbours come from exact search over what `compare_with` is given, so a vector that an
    index has lost counts against it.
    """

    def __init__(self, ids: Int64, vectors: Float32, read: ReadVectors) -> None:
        """Begin with the held-out ids Int64[Q] and vectors Float32[Q, dimension].

        `read` returns the exact vectors of what an index finds.
        """
        self.ids = ids
        self.vectors = vectors
        self._read = read
        self._exact = np.full((len(ids), NEIGHBOURS), -np.inf, dtype=np.float32)

    def compare_with(self, ids: Int64, vectors: Float32) -> None:
        """Compare with vectors Float32[N, dimension] under ids Int64[N], each given once."""
        if not len(self.ids):
            return
        found = compare_all(self.vectors, ids, vectors, NEIGHBOURS + 1)
        others = np.where(found.ids == self.ids[:, None], -np.inf, found.scores)
        both = np.concatenate([self._exact, others], axis=1)
        self._exact = -np.sort(-both, axis=1)[:, :NEIGHBOURS]

    def recall(self, index: FaissIndex, nprobe: int) -> float:
        """Return the recall@10 of an index; 1.0 where there are no neighbours to find."""
        if not len(self.ids):
            return 1.0
        found = index.search(self.vectors, NEIGHBOURS + 1, nprobe=nprobe).ids
        kept = np.where(found == self.ids[:, None], NO_VECTOR, found)
        # Where a query did not find itself, the last neighbour is one too many.
        first = np.argsort(kept == NO_VECTOR, axis=1, kind="stable")[:, :NEIGHBOURS]
        kept = np.take_along_axis(kept, first, axis=1)
        return share_found(exact_cosines(self.vectors, kept, self._read), self._exact)


def exact_cosines(queries: Float32, ids: Int64, read: ReadVectors) -> Float32:
    """Return the cosines of queries Float32[Q, dimension] with what each of them found.

    Args:
        queries: of unit norm.
        ids: Int64[Q, k], what they found; `NO_VECTOR` for nothing.
        read: reads the vectors of these ids.

    Returns:
        Float32[Q, k]; -inf for `NO_VECTOR` and for ids that do not exist.
    """
    known, vectors = read(np.unique(ids[ids != NO_VECTOR]))
    if not len(known):
        return np.full(ids.shape, -np.inf, dtype=np.float32)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    cosines = np.take_along_axis(queries @ vectors.T, places, axis=1)
    exact: Float32 = np.where(known[places] == ids, cosines, np.float32(-np.inf))
    return exact


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

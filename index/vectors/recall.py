"""How many of the exact neighbours an index finds, and how many lists that takes."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.faiss_index import FaissIndex, default_nprobe

NEIGHBOURS = 10  # recall is measured at so many
_TOLERANCE = 1e-5  # two ways to add up one cosine differ by as much
_STEP = 1.25


class HeldOut:
    """Vectors that an index was not trained with, and their exact neighbours among all others.

    The neighbours are found by brute force over what `see` is given, without any index, so a
    vector that an index has lost counts against it.
    """

    def __init__(self, ids: Int64, vectors: Float32) -> None:
        """Begin with the held-out ids Int64[Q] and vectors Float32[Q, dimension]."""
        self.ids = ids
        self.vectors = vectors
        self._best = np.full((len(ids), NEIGHBOURS), -np.inf, dtype=np.float32)

    def see(self, ids: Int64, vectors: Float32) -> None:
        """Compare with vectors Float32[N, dimension] under ids Int64[N], each given once."""
        scores = self.vectors @ vectors.T
        scores[self.ids[:, None] == ids[None]] = -np.inf  # nobody is a neighbour of itself
        both = np.concatenate([self._best, scores], axis=1)
        self._best = np.partition(both, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:]

    def recall(self, index: FaissIndex, nprobe: int) -> float:
        """Return the recall@10 against the exact neighbours; 1.0 where there are none to find."""
        if not len(self.ids):
            return 1.0
        found = index.search(self.vectors, NEIGHBOURS + 1, nprobe=nprobe)
        scores = np.where(found.ids == self.ids[:, None], -np.inf, found.scores)
        return share_found(np.sort(scores, axis=1)[:, : -NEIGHBOURS - 1 : -1], self._best)


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


def nprobe_bounds(nlist: int) -> tuple[int, int]:
    """Return the fewest and the most of `nlist` lists that a query may visit.

    Fewer than the default would save a small part of the time of a match and lose neighbours;
    beyond half of the lists an index is hardly faster than the comparison with every vector.
    """
    least = default_nprobe(nlist)
    return least, max(least, nlist // 2)


def more_lists(nprobe: int, nlist: int) -> int:
    """Return the next larger nprobe within the bounds, or the same at their end."""
    return min(nprobe_bounds(nlist)[1], math.ceil(nprobe * _STEP))


def fewer_lists(nprobe: int, nlist: int) -> int:
    """Return the next smaller nprobe within the bounds, or the same at their end."""
    return max(nprobe_bounds(nlist)[0], math.floor(nprobe / _STEP))


def choose_nprobe(nlist: int, target: float, recall: Callable[[int], float]) -> tuple[int, float]:
    """Return the smallest nprobe within the bounds whose recall reaches the target, and its recall.

    Where none does, these are of the largest.
    """
    nprobe = nprobe_bounds(nlist)[0]
    while True:
        reached = recall(nprobe)
        larger = more_lists(nprobe, nlist)
        if reached >= target or larger == nprobe:
            return nprobe, reached
        nprobe = larger


def adapted_nprobe(recalls: Sequence[float], nprobe: int, nlist: int, target: float) -> int:
    """Return how many lists to visit, after the recall of these searches was measured.

    More as soon as their mean is under the target. Fewer only when it is, by two standard errors,
    over the middle between target and 1: in between nothing changes, so that nprobe does not swing.

    Args:
        recalls: recall of searches with `nprobe`, at least two.
        nprobe: as it is.
        nlist: lists of the index.
        target: mean recall to hold.
    """
    mean = float(np.mean(recalls))
    if mean < target:
        return more_lists(nprobe, nlist)
    error = float(np.std(recalls, ddof=1)) / math.sqrt(len(recalls))
    if mean - 2 * error > (1 + target) / 2:
        return fewer_lists(nprobe, nlist)
    return nprobe

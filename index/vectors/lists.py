"""How many lists (cells) an index divides its vectors into, and how many of them a query visits."""

import math
from collections.abc import Callable, Sequence

import numpy as np

ONE_LIST_BELOW = 5_000
SAMPLE_PER_LIST = 64
_STEP = 1.25


def choose_nlist(count: int) -> int:
    """Return how many lists an index of `count` vectors should have.

    One below `ONE_LIST_BELOW`, where comparing all vectors takes less time than encoding a
    sentence. Above, 4 * sqrt(count), which balances choosing the lists against scanning them,
    but at least 39 vectors a list, which k-means needs for stable centres.
    """
    if count < ONE_LIST_BELOW:
        return 1
    return min(math.isqrt(16 * count), count // 39)


def default_nprobe(nlist: int) -> int:
    """Return how many of `nlist` lists a query visits by default.

    2 * sqrt(nlist): the scanned share of the vectors falls as the index grows, while about as few
    neighbours are lost at the borders of cells. Encoding a long document costs many times a
    search, so this errs on the side of recall.
    """
    return min(nlist, 2 * math.isqrt(nlist))


def nprobe_bounds(nlist: int) -> tuple[int, int]:
    """Return the fewest and the most of `nlist` lists that a query may visit.

    Fewer than the default would lose neighbours and hardly save any time of a match; beyond half
    of the lists an index is hardly faster than comparing every vector.
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

    If none does, return the largest and its recall.
    """
    nprobe = nprobe_bounds(nlist)[0]
    while True:
        reached = recall(nprobe)
        larger = more_lists(nprobe, nlist)
        if reached >= target or larger == nprobe:
            return nprobe, reached
        nprobe = larger


def adapted_nprobe(recalls: Sequence[float], nprobe: int, nlist: int, target: float) -> int:
    """Return how many lists to visit, given the measured recall of some searches.

    More if their mean is below the target. Fewer only if it is, by two standard errors, above the
    middle between target and 1: in between nothing changes, so that nprobe does not oscillate.

    Args:
        recalls: recall of searches with `nprobe`, at least two.
        nprobe: at present.
        nlist: lists of the index.
        target: mean recall to keep.
    """
    mean = float(np.mean(recalls))
    if mean < target:
        return more_lists(nprobe, nlist)
    error = float(np.std(recalls, ddof=1)) / math.sqrt(len(recalls))
    if mean - 2 * error > (1 + target) / 2:
        return fewer_lists(nprobe, nlist)
    return nprobe

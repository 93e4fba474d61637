"""The lists (cells) that an index divides its vectors into: pure functions of counts.

How many there are, how many of them a query visits, and whether they still suit the vectors.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64

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


def nprobe_steps(nlist: int) -> list[int]:
    """Return how many of `nlist` lists a query may visit, ascending, each a quarter more.

    Fewer than the default would lose neighbours and hardly save any time of a match; beyond half
    of the lists an index is hardly faster than comparing every vector.
    """
    steps = [default_nprobe(nlist)]
    while steps[-1] < nlist // 2:
        steps.append(min(nlist // 2, math.ceil(steps[-1] * _STEP)))
    return steps


def choose_nprobe(nlist: int, target: float, recall: Callable[[int], float]) -> tuple[int, float]:
    """Return the smallest of `nprobe_steps` whose recall reaches the target, and its recall.

    If none does, return the largest and its recall.
    """
    for nprobe in nprobe_steps(nlist):
        reached = recall(nprobe)
        if reached >= target:
            break
    return nprobe, reached


def adapted_nprobe(recalls: Sequence[float], nprobe: int, nlist: int, target: float) -> int:
    """Return how many lists to visit, given the measured recall of some searches.

    A step more if their mean is below the target. A step less only if it is, by two standard
    errors, above the middle between target and 1: in between nothing changes, so that nprobe does
    not oscillate.

    Args:
        recalls: recall of searches with `nprobe`, at least two.
        nprobe: at present.
        nlist: lists of the index.
        target: mean recall to keep.
    """
    steps = nprobe_steps(nlist)
    step = bisect_left(steps, nprobe)
    mean = float(np.mean(recalls))
    error = float(np.std(recalls, ddof=1)) / math.sqrt(len(recalls))
    if mean < target:
        step += 1
    elif mean - 2 * error > (1 + target) / 2:
        step -= 1
    return steps[min(max(step, 0), len(steps) - 1)]


OUTGROWN_BY = 4


@dataclass(frozen=True, slots=True)
class Drift:
    """How far an index has drifted from the one that was trained.

    Attributes:
        imbalance: mean search time relative to lists of equal size; 1 is the best.
        empty: share of lists without vectors.
        added: vectors added since training, relative to those it was trained for.
        removed: share of those it was trained for that is gone.
        nlist: number of lists.
        outgrown: there are `OUTGROWN_BY` times too few or too many lists.
        moved: vectors are in another space than that of the store.
    """

    imbalance: float
    empty: float
    added: float
    removed: float
    nlist: int
    outgrown: bool
    moved: bool = False

    @property
    def changed(self) -> float:
        """Vectors added and removed since training, relative to those it was trained for."""
        return self.added + self.removed


# The drift above which lists are trained again.
_MOST_IMBALANCE, _MOST_EMPTY, _MOST_ADDED, _MOST_REMOVED = 3.0, 0.4, 1.0, 0.5
# The least change since training, or since the last attempt, before another attempt is worthwhile:
# the lists of some corpora are uneven as soon as they are trained, and that would not help.
_LEAST_CHANGED = 0.1


def needs_training(nlist: int, count: int) -> bool:
    """Return whether `count` vectors have outgrown, or no longer fill, an index of `nlist` lists.

    Lists grow with their vectors, so an index that is slightly off is fine; with `OUTGROWN_BY`
    times too few or too many lists a query compares far more than it needs to.
    """
    suitable = choose_nlist(count)
    return max(suitable, nlist) >= OUTGROWN_BY * min(suitable, nlist)


def measure_drift(sizes: Int64, trained: int, *, added: int, removed: int) -> Drift:
    """Measure how far an index has drifted.

    The imbalance is that of FAISS: nlist * sum(n^2) / sum(n)^2 over the list sizes n.

    Args:
        sizes: how many vectors each list has, Int64[nlist].
        trained: how many vectors the lists were trained for.
        added: present vectors that were added since.
        removed: vectors that existed then and are gone.
    """
    total = int(sizes.sum())
    squares = float(np.square(sizes, dtype=np.float64).sum())
    return Drift(
        imbalance=len(sizes) * squares / total**2 if total else 1.0,
        empty=float((sizes == 0).mean()) if total else 0.0,
        added=added / max(trained, 1),
        removed=removed / max(trained, 1),
        nlist=len(sizes),
        outgrown=needs_training(len(sizes), total),
    )


def drift_reasons(drift: Drift, *, attempted_at: float = 0.0) -> tuple[str, ...]:
    """Return the reasons to retrain the lists, each in a few words; none where they suit.

    Args:
        drift: as measured.
        attempted_at: the `changed` of the last attempt on the same lists.
    """
    if drift.moved:
        return ("another space",)
    if drift.changed < attempted_at + _LEAST_CHANGED:
        return ()
    reasons = ["too few or too many lists"] if drift.outgrown else []
    if drift.nlist == 1:  # one list suits any vectors as long as they are few
        return tuple(reasons)
    over = {
        "imbalance": (drift.imbalance, _MOST_IMBALANCE),
        "empty lists": (drift.empty, _MOST_EMPTY),
        "growth": (drift.added, _MOST_ADDED),
        "deletes": (drift.removed, _MOST_REMOVED),
    }
    reasons += [f"{name} {value:.2f}" for name, (value, limit) in over.items() if value > limit]
    return tuple(reasons)

"""Runs of words that many unrelated documents share, and where a text has them.

A run is `RUN_WORDS` words that follow each other. Of the runs of a text those are looked at that
have the lowest hash of `_WINDOW` neighbours (winnowing: Schleimer, Wilkerson and Aiken, SIGMOD
2003), so that equal stretches of text give equal runs, and these cover them without a gap; and the
first and the last one, since common text often begins or ends a document.

Versions of one document share runs, too, and are no measure of what is common. So a document counts
for as much of it as is its own, each of its runs divided among the documents that have it:

    own(d)  = mean over the runs r of d of 1 / documents(r)
    weight(r) = sum of own(d) over the documents that have r

Ten copies weigh 1 together, ten versions of which each has a tenth for itself 1.9, and a licence of
as many words as each of the ten documents under it 5.5.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, UInt64
from encoder.terms.title_matcher import hash_runs

RUN_WORDS = 8
LEAST_WEIGHT = 4.0  # what two or three documents quote is what they have in common
LEAST_SHARE = 0.001  # of the documents, if that is more
LEAST_OWN = 0.2  # of the words of a text; one that has less counts whole, as a copy of the licence
MAX_RUNS = 1 << 18
_WINDOW = 4
_MAX_WORDS = 20_000  # of a document, from which its runs are taken
_NO_RUNS: UInt64 = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class CommonText:
    """The common text of a collection.

    Attributes:
        runs: UInt64[R], hashes of the common runs, ascending.
        changing: UInt64[C], ascending, runs that became common, or no longer are, while documents
            that have them may not be counted again yet.
        version: counts the changes; 0 before it is measured.
    """

    runs: UInt64
    changing: UInt64
    version: int

    def __len__(self) -> int:
        return len(self.runs)

    def find(self, words: UInt64) -> Bool | None:
        """Return which of the hashed words UInt64[W] of a text are common; None if none counts so.

        That is also the case if nearly all are.
        """
        if not len(self.runs) or len(words) < RUN_WORDS:
            return None
        starts = np.flatnonzero(_contains(self.runs, hash_runs(words, RUN_WORDS)))
        if not len(starts):
            return None
        edges = np.zeros(len(words) + 1, dtype=np.int64)
        edges[starts] += 1
        edges[starts + RUN_WORDS] -= 1
        common: Bool = np.cumsum(edges[:-1]) > 0
        return common if common.mean() <= 1 - LEAST_OWN else None

    def is_changing(self, words: UInt64) -> bool:
        """Return whether a text of these hashed words UInt64[W] has a run that is changing."""
        if not len(self.changing) or len(words) < RUN_WORDS:
            return False
        return bool(_contains(self.changing, hash_runs(words, RUN_WORDS)).any())


NO_COMMON_TEXT = CommonText(_NO_RUNS, _NO_RUNS, 0)


def find_common_runs(documents: Iterable[UInt64]) -> UInt64:
    """Return the runs UInt64[R] that many documents share which are otherwise unrelated, ascending.

    Args:
        documents: the hashed words UInt64[W] of each document of a collection, or of a sample.
    """
    sampled = [_sample(words[:_MAX_WORDS]) for words in documents]
    sampled = [runs for runs in sampled if len(runs)]
    if not sampled:
        return _NO_RUNS
    lengths = np.array([len(runs) for runs in sampled], dtype=np.int64)
    runs, places, documents_of = np.unique(
        np.concatenate(sampled), return_inverse=True, return_counts=True
    )
    starts = np.cumsum(lengths) - lengths
    own = np.add.reduceat(1.0 / documents_of[places], starts) / lengths
    weights = np.bincount(places, np.repeat(own, lengths), len(runs))
    common = np.flatnonzero(weights >= max(LEAST_WEIGHT, LEAST_SHARE * len(sampled)))
    found: UInt64 = runs[np.sort(common[np.argsort(-weights[common], kind="stable")[:MAX_RUNS]])]
    return found


def _sample(words: UInt64) -> UInt64:
    runs = hash_runs(words, RUN_WORDS) if len(words) >= RUN_WORDS else _NO_RUNS
    if len(runs) > _WINDOW:
        # The lowest bits of a product depend on the lowest bits of its factors alone.
        mixed = (runs ^ (runs >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        windows = np.lib.stride_tricks.sliding_window_view(mixed, _WINDOW)
        chosen = np.unique(windows.argmin(axis=1) + np.arange(len(windows)))
        runs = runs[np.concatenate([[0], chosen, [-1]])]
    return np.unique(runs)


def _contains(sorted_runs: UInt64, runs: UInt64) -> Bool:
    places = np.minimum(np.searchsorted(sorted_runs, runs), len(sorted_runs) - 1)
    found: Bool = sorted_runs[places] == runs
    return found

"""The titles that a text names: runs of its words that are a known title.

A text with "as in World War II" names the document of that title, and two texts that name the same
documents are related. A title is a term like a word: `index.lexical.terms` gives words as 64-bit
numbers, the items here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64, UInt64

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no item of a run
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64
_SLOTS = 1 << 16  # of a table of titles
_LOW_BITS = np.uint64(_SLOTS - 1)


@dataclass(frozen=True, slots=True)
class TitleMatcher:
    """A hash table of titles.

    Attributes:
        hashes: UInt64[T] of their items, ascending.
        lengths: Int64[L] how many items they have, ascending.
    """

    hashes: UInt64
    lengths: Int64

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, items: UInt64) -> Iterator[tuple[int, Int64, UInt64]]:
        """Find the titles in a sequence of items UInt64[W].

        Yields:
            For each length of titles: it, where titles of this length begin, and their hashes.
        """
        lengths = self.lengths.tolist() if len(self.hashes) else []
        seen = np.zeros(_SLOTS, dtype=np.bool_)  # most runs are no title, which their bits show
        seen[self.hashes[:_SLOTS] & _LOW_BITS] = True
        seen |= len(self.hashes) > _SLOTS
        for length, runs in _runs_of_lengths(items, lengths):
            mixed = _mix(runs)
            maybe = np.flatnonzero(seen[mixed & _LOW_BITS])
            some = mixed[maybe]
            places = np.minimum(np.searchsorted(self.hashes, some), len(self.hashes) - 1)
            starts = maybe[self.hashes[places] == some]
            yield length, starts, mixed[starts]

    def joined(self, more: "TitleMatcher") -> "TitleMatcher":
        """Return the titles of both; itself where there are none besides its own."""
        places = np.searchsorted(self.hashes, more.hashes)
        there = places < len(self.hashes)
        there[there] = self.hashes[places[there]] == more.hashes[there]
        if there.all():
            return self
        hashes = np.insert(self.hashes, places[~there], more.hashes[~there])
        return TitleMatcher(hashes, np.union1d(self.lengths, more.lengths))


_NO_HASHES: UInt64 = np.empty(0, dtype=np.uint64)
NO_TITLES = TitleMatcher(_NO_HASHES, np.empty(0, np.int64))


def match_titles(titles: Iterable[UInt64]) -> TitleMatcher:
    """Make a matcher of titles, each given as its items; empty ones are left out."""
    runs, lengths = set(), set()
    for items in titles:
        if length := len(items):
            runs.add(int(next(sums for _, sums in _runs_of_lengths(items, [length]))[0]))
            lengths.add(length)
    hashes = np.unique(_mix(np.array(list(runs), dtype=np.uint64)))
    return TitleMatcher(hashes, np.array(sorted(lengths), dtype=np.int64))


def hash_runs(items: UInt64, length: int) -> UInt64:
    """Hash each run of `length` of the items UInt64[W], at least one: UInt64[W - length + 1].

    Runs of different lengths have different hashes, whatever the items are.
    """
    seed = np.uint64(length * pow(_BASE, length, 2**64) % 2**64)
    return next((sums + seed for _, sums in _runs_of_lengths(items, [length])), _NO_HASHES)


def _runs_of_lengths(items: UInt64, lengths: Sequence[int]) -> Iterator[tuple[int, UInt64]]:
    """Yield each length, ascending, with a polynomial in `_BASE` of each run of this length."""
    sums = np.zeros(len(items) + 1, dtype=np.uint64)
    for length in range(1, min(max(lengths, default=0), len(items)) + 1):
        sums = sums[:-1] * np.uint64(_BASE) + items[length - 1 :]
        if length in lengths:
            yield length, sums


def _mix(runs: UInt64) -> UInt64:
    mixed = (runs ^ (runs >> np.uint64(31))) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(29))

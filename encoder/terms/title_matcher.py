"""The titles that a text names: runs of its words that are a known title.

A text with "as in World War II" names the document of that title, and two texts that name the same
documents are related. A title is a term like a word: `index.lexical.terms` gives words as 64-bit
numbers, the items here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from encoder.arrays import Int64, UInt64

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no item of a run
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64
MAX_ITEMS = 15  # of a title
_LENGTH_AT = np.uint64(59)  # below the sign of a signed number
_HASH_BITS = np.uint64(2**59 - 1)
_SLOTS = 1 << 16  # of a table of titles
_LOW_BITS = np.uint64(_SLOTS - 1)


class Titles(Protocol):
    """Titles that texts may name."""

    def find(self, items: UInt64) -> Iterator[tuple[int, Int64, UInt64]]:
        """Find the titles in a sequence of items UInt64[W], as `TitleMatcher` does."""
        ...


@dataclass(frozen=True, slots=True)
class TitleMatcher:
    """A hash table of titles.

    Attributes:
        hashes: UInt64[T], ascending, each of the items of a title; it tells how many they are.
        lengths: Int64[L] how many items they have, ascending.
    """

    hashes: UInt64
    lengths: Int64

    @classmethod
    def of(cls, hashes: UInt64) -> "TitleMatcher":
        """Return the titles of these hashes, in any order, as `hash_titles` gives them."""
        hashes = np.unique(hashes)
        return cls(hashes, np.unique(hashes >> _LENGTH_AT).astype(np.int64))

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, items: UInt64) -> Iterator[tuple[int, Int64, UInt64]]:
        """Find the titles in a sequence of items UInt64[W].

        Yields:
            For each length of titles: it, where titles of this length begin, and their hashes.
        """
        if not len(self.hashes):
            return
        seen = np.zeros(_SLOTS, dtype=np.bool_)  # most runs are no title, which their bits show
        seen[self.hashes[:_SLOTS] & _LOW_BITS] = True
        seen |= len(self.hashes) > _SLOTS
        for length, runs in _runs_of_lengths(items, self.lengths.tolist()):
            mixed = _mix(runs, length)
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


def hash_titles(titles: Iterable[UInt64]) -> UInt64:
    """Hash titles, each given as its 1 to `MAX_ITEMS` items; empty ones are left out.

    Numbers below 2**63, in which the highest four bits are how many items a title has.
    """
    known = [items for items in titles if len(items)]
    runs = [next(sums for _, sums in _runs_of_lengths(items, [len(items)])) for items in known]
    lengths = np.array([len(items) for items in known], dtype=np.uint64)
    return _mix(np.concatenate([_NO_HASHES, *runs]), lengths)


def hashes_by_length(items: UInt64, longest: int) -> list[UInt64]:
    """Hash the runs of 1, 2, …, `longest` of the items UInt64[W] as `hash_titles` does."""
    runs = _runs_of_lengths(items, range(1, longest + 1))
    return [_mix(sums, length) for length, sums in runs]


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


def _mix(runs: UInt64, lengths: UInt64 | int) -> UInt64:
    mixed = (runs ^ (runs >> np.uint64(31))) * _MULTIPLIER
    mixed = (mixed ^ (mixed >> np.uint64(29))) & _HASH_BITS
    return mixed | (np.asarray(lengths, dtype=np.uint64) << _LENGTH_AT)

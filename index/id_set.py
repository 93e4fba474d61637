"""A set of vectors that a search is kept to."""

from dataclasses import dataclass, field, replace

import numpy as np

from encoder.arrays import Bool, Int64


def no_ids() -> Int64:
    """Return no vector id."""
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class IdSet:
    """Vector ids, given as those that are in it or as those that are not.

    What a filter excludes is often far less than what it leaves, or the other way round; of the
    two only what was asked for is ever listed.

    Attributes:
        end: no id from here on is in it: such vectors came after the selection was made.
        ids: Int64[N], ascending, different, from 0 to below `end`.
        inverted: all ids below `end` but these are in it.
    """

    end: int
    ids: Int64 = field(default_factory=no_ids)
    inverted: bool = False

    def contains(self, ids: Int64) -> Bool:
        """Say for each of ids Int64[N] whether it is in the selection."""
        listed = np.isin(ids, self.ids, assume_unique=False)
        found: Bool = (ids >= 0) & (ids < self.end) & (listed != self.inverted)
        return found

    def most(self, count: int) -> int:
        """Return how many of `count` living vectors, at most, are in the selection."""
        return max(0, count - len(self.ids)) if self.inverted else min(count, len(self.ids))


def complement(one: IdSet) -> IdSet:
    """Return what is below the end and not in a selection."""
    return replace(one, inverted=not one.inverted)


def intersection(one: IdSet, other: IdSet) -> IdSet:
    """Return what is in both selections, which were made at the same time.

    Raises:
        ValueError: they were not.
    """
    if one.end != other.end:
        raise ValueError(f"selections that end at {one.end} and {other.end} cannot be joined")
    if one.inverted and other.inverted:
        return replace(one, ids=np.union1d(one.ids, other.ids))
    if one.inverted:
        one, other = other, one
    join = np.setdiff1d if other.inverted else np.intersect1d
    return replace(one, ids=join(one.ids, other.ids, assume_unique=True))


def without(one: IdSet, ids: Int64) -> IdSet:
    """Return a selection without these vector ids Int64[N], ascending and different."""
    return intersection(one, IdSet(one.end, ids[ids < one.end], inverted=True))


def union(one: IdSet, other: IdSet) -> IdSet:
    """Return what is in at least one of two selections, which were made at the same time.

    Raises:
        ValueError: they were not.
    """
    return complement(intersection(complement(one), complement(other)))

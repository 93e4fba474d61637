"""A set of vector ids that a search is restricted to."""

from dataclasses import dataclass, field, replace

import numpy as np

from encoder.arrays import Bool, Int64


@dataclass(frozen=True, slots=True)
class IdSet:
    """Vector ids, listed as members or as non-members.

    A filter often excludes far fewer documents than it keeps, or the other way round; only one of
    the two lists is ever made.

    Attributes:
        end: ids from here on are not in the set: their vectors came after it was made.
        ids: Int64[N], ascending, different, from 0 to below `end`.
        inverted: the set is all ids below `end` except `ids`.
    """

    end: int
    ids: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    inverted: bool = False

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[N] whether it is in the set."""
        last = len(self.ids) - 1
        places = np.minimum(np.searchsorted(self.ids, ids), last)
        listed = self.ids[places] == ids if last >= 0 else np.zeros(len(ids), dtype=np.bool_)
        found: Bool = (ids >= 0) & (ids < self.end) & (listed != self.inverted)
        return found

    def has(self, vector_id: int) -> bool:
        """Return whether an id is in the set, by bisection."""
        row = int(np.searchsorted(self.ids, vector_id))
        listed = row < len(self.ids) and int(self.ids[row]) == vector_id
        return 0 <= vector_id < self.end and listed != self.inverted

    def most(self, count: int) -> int:
        """Return how many of `count` existing vectors, at most, are in the set."""
        return max(0, count - len(self.ids)) if self.inverted else min(count, len(self.ids))


def complement(ids: IdSet) -> IdSet:
    """Return the ids below the end that are not in a set."""
    return replace(ids, inverted=not ids.inverted)


def intersection(first: IdSet, other: IdSet) -> IdSet:
    """Return the ids in both sets, which must have the same end.

    Raises:
        ValueError: they have not.
    """
    if first.end != other.end:
        raise ValueError(f"id sets that end at {first.end} and {other.end} cannot be combined")
    if first.inverted and other.inverted:
        return replace(first, ids=np.union1d(first.ids, other.ids))
    if first.inverted:
        first, other = other, first
    join = np.setdiff1d if other.inverted else np.intersect1d
    return replace(first, ids=join(first.ids, other.ids, assume_unique=True))


def without(selection: IdSet, ids: Int64) -> IdSet:
    """Return a set without these vector ids Int64[N], ascending and different."""
    return intersection(selection, IdSet(selection.end, ids[ids < selection.end], inverted=True))


def union(first: IdSet, other: IdSet) -> IdSet:
    """Return the ids in at least one of two sets, which must have the same end.

    Raises:
        ValueError: they have not.
    """
    return complement(intersection(complement(first), complement(other)))

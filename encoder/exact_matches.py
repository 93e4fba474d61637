"""What two texts have in common word for word: shared shingles, extended as far as they go.

A shingle is a row of some words (Broder, "On the resemblance and containment of documents", 1997).
All is linear in the number of words: each word is compared a bounded number of times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder.words import Int64, Words

UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]

_CANDIDATES = 8  # places of a repeated shingle that are tried
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FIRST_STEP = 64


class Match(NamedTuple):
    """Equal words: `left:left + length` of one text and `right:right + length` of the other."""

    left: int
    right: int
    length: int


def find_exact_matches(left: Words, right: Words, shingle: int) -> list[Match]:
    """Find the passages of at least `shingle` words that two texts share.

    Every word of either text that stands in a shared shingle is in a match; of a passage that one
    text repeats, each place is matched with a place of the other.

    Returns:
        Matches in the order of the left text; neighbours may overlap by less than a shingle.
    """
    there, back = _Shingles.of(left.codes, shingle), _Shingles.of(right.codes, shingle)
    found = list(_sweep(left.codes, right.codes, there, back, np.zeros(len(left), dtype=bool)))
    covered = np.zeros(len(right), dtype=bool)
    for match in found:
        covered[match.right : match.right + match.length] = True
    again = _sweep(right.codes, left.codes, back, there, covered)
    found += [Match(other, one, length) for one, other, length in again]
    return sorted(set(found))


@dataclass(frozen=True, slots=True)
class _Shingles:
    """The shingles of a text: the hash of each, and the places in the order of their hashes."""

    hashes: UInt64
    places: Int64
    ordered: UInt64
    length: int

    @classmethod
    def of(cls, codes: Int64, length: int) -> "_Shingles":
        count = max(0, len(codes) - length + 1)
        hashes = np.zeros(count, dtype=np.uint64)
        for word in range(length):
            hashes = hashes * _BASE + codes[word : word + count].view(np.uint64)
        places = np.argsort(hashes, kind="stable")
        return cls(hashes, places, hashes[places], length)


def _sweep(
    codes: Int64, others: Int64, mine: _Shingles, theirs: _Shingles, covered: Bool
) -> Iterator[Match]:
    """Walk over a text and yield, for what is shared and not yet covered, the longest match."""
    first = np.searchsorted(theirs.ordered, mine.hashes, side="left")
    last = np.searchsorted(theirs.ordered, mine.hashes, side="right")
    shared = np.flatnonzero(last > first)
    turn = 0
    while turn < len(shared):
        place = int(shared[turn])
        stop = place + 1
        if not covered[place : place + mine.length].all():
            start, count = int(first[place]), int(last[place] - first[place])
            candidates = theirs.places[start : start + min(count, _CANDIDATES)].tolist()
            length, other = max(
                (_common_length(codes[place:], others[candidate:]), -candidate)
                for candidate in candidates
            )
            if length >= mine.length:  # equal hashes of other words are possible, if unlikely
                yield Match(place, -other, length)
                stop = place + length - mine.length + 1
        turn = int(np.searchsorted(shared, stop, side="left"))


def _common_length(one: Int64, other: Int64) -> int:
    """Return how many words two texts share from their beginnings."""
    most = min(len(one), len(other))
    done, step = 0, _FIRST_STEP
    while done < most:
        stop = min(done + step, most)
        differing = np.flatnonzero(one[done:stop] != other[done:stop])
        if len(differing):
            return done + int(differing[0])
        done, step = stop, step * 2
    return most

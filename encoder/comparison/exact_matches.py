"""Exact matches of two texts: shared shingles, extended as far as possible.

A shingle is a sequence of consecutive words (Broder, "On the resemblance and containment of
documents", 1997). Time is linear in the number of words: each is compared a bounded number of
times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from encoder.arrays import Bool, Int64, UInt64
from encoder.comparison.words import Words


class Box(NamedTuple):
    """Words `left_start:left_end` of one text and `right_start:right_end` of the other."""

    left_start: int
    left_end: int
    right_start: int
    right_end: int

    @property
    def shorter(self) -> int:
        """Words of the shorter side."""
        return min(self.left_end - self.left_start, self.right_end - self.right_start)


def merge_spans(boxes: Sequence[Box], gap: int) -> list[Box]:
    """Join boxes that are at most `gap` words apart in both texts.

    Boxes are separated where a text has a wider gap, on one side and then on the other, until no
    part has one (Sanchez-Perez and others, 2014, section 2.3). Within a part the order of the two
    sides may differ: a paraphrase may reorder sentences.

    Returns:
        The hull of each part, in the order of the left text.
    """
    waiting = [list(boxes)] if boxes else []
    whole: list[Box] = []
    while waiting:
        part = waiting.pop()
        pieces = [piece for half in _parted(part, 0, gap) for piece in _parted(half, 2, gap)]
        if len(pieces) == 1:
            whole.append(_hull(part))
        else:
            waiting.extend(pieces)
    return sorted(whole)


def _parted(boxes: list[Box], side: int, gap: int) -> Iterator[list[Box]]:
    """Yield the boxes in groups without a gap on the side whose start is field `side`."""
    ordered = sorted(boxes, key=lambda box: box[side])
    first, reached = 0, ordered[0][side + 1]
    for number, (_, box) in enumerate(pairwise(ordered), start=1):
        if box[side] > reached + gap:
            yield ordered[first:number]
            first = number
        reached = max(reached, box[side + 1])
    yield ordered[first:]


def _hull(boxes: Sequence[Box]) -> Box:
    return Box(
        min(box.left_start for box in boxes),
        max(box.left_end for box in boxes),
        min(box.right_start for box in boxes),
        max(box.right_end for box in boxes),
    )


_CANDIDATES = 8  # positions tried of a repeated shingle
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FIRST_STEP = 64


class ExactMatch(NamedTuple):
    """Equal words: `left:left + length` of one text and `right:right + length` of the other."""

    left: int
    right: int
    length: int


def find_exact_matches(left: Words, right: Words, shingle: int) -> list[ExactMatch]:
    """Find the passages of at least `shingle` words that two texts share.

    Every word of either text in a shared shingle is in a match; each occurrence of a passage that
    one text repeats is matched with an occurrence in the other.

    Returns:
        Matches in the order of the left text; neighbours may overlap by less than a shingle.
    """
    there, back = _Shingles.of(left.codes, shingle), _Shingles.of(right.codes, shingle)
    found = list(_sweep(left.codes, right.codes, there, back, np.zeros(len(left), dtype=bool)))
    covered = np.zeros(len(right), dtype=bool)
    for match in found:
        covered[match.right : match.right + match.length] = True
    again = _sweep(right.codes, left.codes, back, there, covered)
    found += [ExactMatch(other, one, length) for one, other, length in again]
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
) -> Iterator[ExactMatch]:
    """Scan a text and yield the longest match of each shared part not yet covered."""
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
            if length >= mine.length:  # different words may have equal hashes
                yield ExactMatch(place, -other, length)
                stop = place + length - mine.length + 1
        turn = int(np.searchsorted(shared, stop, side="left"))


def _common_length(one: Int64, other: Int64) -> int:
    """Return the length of the common prefix of two texts, in words."""
    most = min(len(one), len(other))
    done, step = 0, _FIRST_STEP
    while done < most:
        stop = min(done + step, most)
        differing = np.flatnonzero(one[done:stop] != other[done:stop])
        if len(differing):
            return done + int(differing[0])
        done, step = stop, step * 2
    return most

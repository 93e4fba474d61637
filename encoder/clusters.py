"""Joining matches that stand together in both texts, in whatever order, into passages."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


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


def join_boxes(boxes: Sequence[Box], gap: int) -> list[Box]:
    """Join boxes that are at most `gap` words apart in both texts.

    Boxes are parted where a text has a wider gap, on one side and then on the other, until no part
    has one (Sanchez-Perez and others, 2014, section 2.3). Within a part the order of the two sides
    may differ: sentences of a paraphrase change places.

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

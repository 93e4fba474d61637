"""The pictures of a comparison: the matrix of sections, and the ribbons between passages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from encoder.comparison.result import AlignedPassage, Span

SHADES = 10
HEIGHT = 1000  # of the map of ribbons
# Pixels:
_ROOM = 300  # for the matrix, in both directions
_SMALLEST, _LARGEST = 3, 28  # side of a cell
_LABEL_LINE = 13  # of a label, along its axis
MARGIN = 20  # of the labels, to the left of and above the cells
_SHORTEST = 2  # of HEIGHT: shorter ribbons would be invisible
_PAGE_LINE = 75  # characters in a line of the page, roughly; a longer one is wrapped


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or the columns of the matrix; all lengths in pixels.

    Attributes:
        cell: the length of a cell along the axis.
        length: of the axis.
        labels: the number of a section, from 1, and its middle: as many as there is room for.
    """

    cell: int
    length: int
    labels: list[tuple[int, float]]


def draw_axis(sections: int) -> Axis:
    """Lay out the sections of one text."""
    cell = min(max((_ROOM - MARGIN) // sections, _SMALLEST), _LARGEST)
    shown = range(0, sections, -(-_LABEL_LINE // cell))
    return Axis(cell, cell * sections, [(n + 1, (n + 0.5) * cell) for n in shown])


def shade_of(score: float) -> int:
    """Return the shade of a cosine, 0 to SHADES - 1: equal steps from 0 to 1."""
    return int(np.clip(score * SHADES, 0, SHADES - 1))


def draw_ribbons(left: str, right: str, passages: Sequence[AlignedPassage]) -> list[str]:
    """Return the outline of a ribbon from each passage on the left to its match on the right.

    It is an SVG path in a box 100 wide and HEIGHT high, to which each text is scaled.
    """
    left_extents = _extents(left, [passage.left for passage in passages])
    right_extents = _extents(right, [passage.right for passage in passages])
    both = np.hstack([left_extents, right_extents])
    return [_outline(*extents) for extents in both.tolist()]


def _extents(text: str, spans: Sequence[Span]) -> Int64:
    """Return where spans begin and end on the map, Int64[P, 2].

    The height of a character is given by the lines before it, including wrapped ones.
    """
    lengths = np.array([len(line) for line in text.split("\n")])
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    rows = np.concatenate([[0], np.cumsum(1 + lengths // _PAGE_LINE)])
    positions = np.array(spans, dtype=np.float64).reshape(-1, 2)
    heights = np.interp(positions, starts, rows * HEIGHT / rows[-1])
    extents: Int64 = heights.round().astype(np.int64)
    extents[:, 0] = np.minimum(extents[:, 0], HEIGHT - _SHORTEST)
    extents[:, 1] = np.maximum(extents[:, 1], extents[:, 0] + _SHORTEST)
    return extents


def _outline(left_top: int, left_end: int, right_top: int, right_end: int) -> str:
    """Return a band that curves from left to right and meets both edges at a right angle."""
    return (
        f"M0 {left_top}H9C50 {left_top} 50 {right_top} 91 {right_top}H100"
        f"V{right_end}H91C50 {right_end} 50 {left_end} 9 {left_end}H0Z"
    )

"""The map between two texts: a ribbon from each passage to the one that matches it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder.comparison import AlignedPassage, Span
from service.web.marked_text import KIND_CLASSES

HEIGHT = 1000
_SHORTEST = 2  # of HEIGHT: what is shorter is not seen
_LINE = 75  # characters in a line of the page, roughly; a longer one is wrapped


@dataclass(frozen=True, slots=True)
class Ribbon:
    """A passage of the map.

    Attributes:
        kind: the class of its kind.
        path: its outline as an SVG path, in a box 100 wide and HEIGHT high.
    """

    kind: str
    path: str


def draw_ribbons(left: str, right: str, passages: Sequence[AlignedPassage]) -> list[Ribbon]:
    """Return a ribbon for each passage; each text is as high as the map, however long it is."""
    left_extents = _extents(left, [passage.left for passage in passages])
    right_extents = _extents(right, [passage.right for passage in passages])
    return [
        Ribbon(KIND_CLASSES[passage.kind], _outline(*left_extent, *right_extent))
        for passage, left_extent, right_extent in zip(
            passages, left_extents.tolist(), right_extents.tolist(), strict=True
        )
    ]


def _extents(text: str, spans: Sequence[Span]) -> NDArray[np.int64]:
    """Return where spans begin and end on the map, Int64[P, 2].

    A character is as far down as the lines before it say, wrapped ones counted.
    """
    lengths = np.array([len(line) for line in text.split("\n")])
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    rows = np.concatenate([[0], np.cumsum(1 + lengths // _LINE)])
    places = np.array(spans, dtype=np.float64).reshape(-1, 2)
    heights = np.interp(places, starts, rows * HEIGHT / rows[-1])
    extents: NDArray[np.int64] = heights.round().astype(np.int64)
    extents[:, 0] = np.minimum(extents[:, 0], HEIGHT - _SHORTEST)
    extents[:, 1] = np.maximum(extents[:, 1], extents[:, 0] + _SHORTEST)
    return extents


def _outline(left_top: int, left_end: int, right_top: int, right_end: int) -> str:
    """Return a band that bends from left to right, straight where it touches the two edges."""
    return (
        f"M0 {left_top}H9C50 {left_top} 50 {right_top} 91 {right_top}H100"
        f"V{right_end}H91C50 {right_end} 50 {left_end} 9 {left_end}H0Z"
    )

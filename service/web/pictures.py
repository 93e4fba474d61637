"""The pictures of a comparison: the matrix of sections, and the ribbons between passages."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.comparison.result import AlignedPassage, Section, Span
from service.web.marked_text import KIND_CLASSES

SHADES = 10
HEIGHT = 1000  # of the map of ribbons
# Pixels:
_ROOM = 300  # for the matrix, in both directions
_SMALLEST, _LARGEST = 3, 28  # side of a cell
_LABEL_LINE = 13  # of a label, along its axis
_NUMBERS, _NAMES = 20, 100  # of labels, across their axis
_SLANT = 44  # that the slanted name of the last column extends beyond it
_MOST_NAMED = 12  # sections of an axis that have room for names
_NAME = 12  # Latin letters of a name
_TITLED_CELLS = 1600  # with more, cells have no tooltips without the script: the page stays small
_SHORTEST = 2  # of HEIGHT: shorter ribbons would be invisible
_PAGE_LINE = 75  # characters in a line of the page, roughly; a longer one is wrapped


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of sections in the picture: its corner in pixels, its shade and its score."""

    x: int
    y: int
    shade: int
    row: int
    column: int
    score: float


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a row or a column, and its middle in pixels."""

    text: str
    middle: float


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or the columns.

    Attributes:
        cell: the length of a cell along the axis.
        length: of the axis.
        labels: as many as there is room for.
    """

    cell: int
    length: int
    labels: list[Label]


@dataclass(frozen=True, slots=True)
class MatrixPicture:
    """The matrix as the template draws it; all lengths in pixels.

    Attributes:
        rows: the left sections.
        columns: the right ones.
        cells: row by row.
        named: whether labels have names; otherwise they are numbers only.
        margin: of the labels to the left of and above the cells.
        overhang: of the labels above the cells, at the right.
        tooltips: whether each cell has a title in the page.
    """

    rows: Axis
    columns: Axis
    cells: list[Cell]
    named: bool
    margin: int
    overhang: int
    tooltips: bool


def draw_matrix(
    scores: Float32, left: Sequence[Section], right: Sequence[Section]
) -> MatrixPicture:
    """Return the picture of a matrix of scores.

    Args:
        scores: Float32[L, R], a row for each left section, a column for each right one.
        left: the L sections of the left text.
        right: the R sections of the right text.
    """
    named = max(len(left), len(right)) <= _MOST_NAMED and any(
        section.title.strip() for section in (*left, *right)
    )
    margin, overhang = (_NAMES, _SLANT) if named else (_NUMBERS, 0)
    rows = _axis(left, _ROOM - margin, named=named)
    columns = _axis(right, _ROOM - margin - overhang, named=named)
    cells = [
        Cell(column * columns.cell, row * rows.cell, shade_of(score), row + 1, column + 1, score)
        for row, line in enumerate(scores.tolist())
        for column, score in enumerate(line)
    ]
    tooltips = len(cells) <= _TITLED_CELLS
    return MatrixPicture(rows, columns, cells, named, margin, overhang, tooltips)


def shade_of(score: float) -> int:
    """Return the shade of a cosine, 0 to SHADES - 1: equal steps from 0 to 1."""
    return int(np.clip(score * SHADES, 0, SHADES - 1))


def _axis(sections: Sequence[Section], room: int, *, named: bool) -> Axis:
    """Lay out the sections of one text."""
    cell = min(max(room // len(sections), _SMALLEST), _LARGEST)
    labels = []
    for number in range(0, len(sections), -(-_LABEL_LINE // cell)):
        name = _shorten(sections[number].title) if named else ""
        labels.append(Label(f"{number + 1} {name}".strip(), (number + 0.5) * cell))
    return Axis(cell, cell * len(sections), labels)


def _shorten(title: str) -> str:
    """Shorten a title to the room of a label; a Chinese character is two letters wide."""
    room = _NAME
    words = " ".join(title.split())
    for index, character in enumerate(words):
        room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if room < 0:
            return words[:index].rstrip() + "…"
    return words


@dataclass(frozen=True, slots=True)
class Ribbon:
    """A ribbon from a passage on the left to its match on the right.

    Attributes:
        kind: the class of its kind.
        path: its outline as an SVG path, in a box 100 wide and HEIGHT high.
    """

    kind: str
    path: str


def draw_ribbons(left: str, right: str, passages: Sequence[AlignedPassage]) -> list[Ribbon]:
    """Return a ribbon for each passage; each text is scaled to the height of the map."""
    left_extents = _extents(left, [passage.left for passage in passages])
    right_extents = _extents(right, [passage.right for passage in passages])
    return [
        Ribbon(KIND_CLASSES[passage.kind], _outline(*left_extent, *right_extent))
        for passage, left_extent, right_extent in zip(
            passages, left_extents.tolist(), right_extents.tolist(), strict=True
        )
    ]


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

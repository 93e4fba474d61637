"""The picture of how every section of one text matches every section of the other."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.comparison import Float32, Section

SHADES = 10
# Pixels:
_ROOM = 300  # for the picture, either way
_SMALLEST, _LARGEST = 3, 28  # a cell
_LINE = 13  # a label, along its axis
_NUMBERS, _NAMES = 20, 100  # labels, across their axis
_SLANT = 44  # by how much the name of the last column, which is slanted, stands out
_MOST_NAMED = 12  # sections of an axis that have room for names
_NAME = 12  # Latin letters of a name
_TITLED_CELLS = 1600  # a picture with more has no tooltips without the script: the page stays small


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
    """What names a row or a column, and its middle in pixels."""

    text: str
    place: float


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or the columns.

    Attributes:
        cell: the length of a cell along the axis.
        length: of the axis.
        labels: as many as have room.
    """

    cell: int
    length: int
    labels: list[Label]


@dataclass(frozen=True, slots=True)
class MatrixPicture:
    """What the template draws; all lengths in pixels.

    Attributes:
        rows: the left sections.
        columns: the right ones.
        cells: row by row.
        named: whether labels are names; else they are numbers alone.
        margin: what the labels need beside the cells and above them.
        overhang: what those above need at the right.
        tooltips: whether each cell has its title in the page.
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
    """Return the picture of Float32[L, R]: a row for each left section, a column for each right."""
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
    for number in range(0, len(sections), -(-_LINE // cell)):
        name = _shorten(sections[number].title) if named else ""
        labels.append(Label(f"{number + 1} {name}".strip(), (number + 0.5) * cell))
    return Axis(cell, cell * len(sections), labels)


def _shorten(title: str) -> str:
    """Cut a title to what a label has room for; a Chinese character is two letters wide."""
    room = _NAME
    words = " ".join(title.split())
    for place, character in enumerate(words):
        room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if room < 0:
            return words[:place].rstrip() + "…"
    return words

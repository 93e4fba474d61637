"""The picture of how every section of one text matches every section of the other."""

from dataclasses import dataclass

import numpy as np

from encoder.comparison import Float32

SHADES = 10
_WIDTH, _HEIGHT = 264, 264
_SMALLEST, _LARGEST = 3, 30
_LABEL = 14  # pixels that a number of an axis needs along the axis
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
class Tick:
    """The number of a section and the middle of its row or column, in pixels."""

    number: int
    place: float


@dataclass(frozen=True, slots=True)
class MatrixPicture:
    """What the template draws; all lengths in pixels.

    Attributes:
        width: of the cells together.
        height: of the cells together.
        cell_width: of one cell.
        cell_height: of one cell.
        cells: row by row.
        columns: numbers above the columns, as many as have room.
        rows: numbers beside the rows.
        tooltips: whether each cell has its title in the page.
    """

    width: int
    height: int
    cell_width: int
    cell_height: int
    cells: list[Cell]
    columns: list[Tick]
    rows: list[Tick]
    tooltips: bool


def draw_matrix(scores: Float32) -> MatrixPicture:
    """Return the picture of Float32[L, R]: a row for each left section, a column for each right."""
    rows, columns = scores.shape
    high, wide = _cell_size(rows, _HEIGHT), _cell_size(columns, _WIDTH)
    cells = [
        Cell(column * wide, row * high, shade_of(score), row + 1, column + 1, score)
        for row, line in enumerate(scores.tolist())
        for column, score in enumerate(line)
    ]
    return MatrixPicture(
        width=columns * wide,
        height=rows * high,
        cell_width=wide,
        cell_height=high,
        cells=cells,
        columns=_ticks(columns, wide),
        rows=_ticks(rows, high),
        tooltips=len(cells) <= _TITLED_CELLS,
    )


def shade_of(score: float) -> int:
    """Return the shade of a cosine, 0 to SHADES - 1: equal steps from 0 to 1."""
    return int(np.clip(score * SHADES, 0, SHADES - 1))


def _cell_size(sections: int, room: int) -> int:
    return min(max(room // sections, _SMALLEST), _LARGEST)


def _ticks(sections: int, size: int) -> list[Tick]:
    """Number every section that has room for a number, the first always."""
    step = -(-_LABEL // size)
    return [Tick(number + 1, (number + 0.5) * size) for number in range(0, sections, step)]

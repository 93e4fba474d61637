"""The map of the passages and the picture of the sections."""

import re
from itertools import pairwise

import numpy as np
import pytest

from encoder.comparison.result import AlignedPassage, Section, Span
from service.web.pictures import HEIGHT, SHADES, draw_matrix, draw_ribbons, shade_of


def corners(path: str) -> tuple[int, int, int, int]:
    """Left top, left end, right top, right end of a ribbon."""
    found = re.fullmatch(r"M0 (\d+)H9C.* 91 \d+H100V(\d+)H91C.* 9 (\d+)H0Z", path)
    assert found
    top_right = re.search(r" 91 (\d+)H100", path)
    assert top_right
    return int(found[1]), int(found[3]), int(top_right[1]), int(found[2])


def ribbon(left: str, right: str, *spans: tuple[int, int]) -> tuple[int, int, int, int]:
    passage = AlignedPassage(Span(*spans[0]), Span(*spans[1]), 0.5, "similar")
    [ribbon] = draw_ribbons(left, right, [passage])
    assert ribbon.kind == "s"
    return corners(ribbon.path)


def test_a_ribbon_is_as_high_as_its_share_of_the_lines() -> None:
    lines = "four\n" * 10
    assert ribbon(lines, lines * 2, (0, 25), (50, 100)) == (0, 455, 476, 952)


def test_a_long_line_counts_as_the_lines_it_is_wrapped_to() -> None:
    long_first = "x" * 749 + "\n" + "y"
    assert ribbon(long_first, "a", (750, 751), (0, 1))[0] == round(10 / 11 * HEIGHT)


@pytest.mark.parametrize("span", [(0, 0), (100_000, 100_000), (99_999, 200_000)])
def test_a_ribbon_is_never_too_thin_to_see_and_never_outside(span: tuple[int, int]) -> None:
    top, end, _, _ = ribbon("x " * 50_000, "", span, (0, 0))
    assert 0 <= top < end <= HEIGHT


@pytest.mark.parametrize(
    ("score", "shade"),
    [(-1, 0), (0, 0), (0.09, 0), (0.55, 5), (0.999, 9), (1, SHADES - 1), (1.1, 9)],
)
def test_shades_are_equal_steps_from_zero_to_one(score: float, shade: int) -> None:
    assert shade_of(score) == shade


def sections(count: int, title: str = "") -> list[Section]:
    return [Section(Span(number, number + 1), title) for number in range(count)]


def test_a_cell_for_each_pair_in_its_row_and_column() -> None:
    scores = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], dtype=np.float32)
    picture = draw_matrix(scores, sections(2), sections(3))
    assert len(picture.cells) == 6
    last = picture.cells[-1]
    assert (last.row, last.column) == (2, 3)
    assert last.x + picture.columns.cell == picture.columns.length
    assert last.y + picture.rows.cell == picture.rows.length
    assert [label.text for label in picture.columns.labels] == ["1", "2", "3"]


@pytest.mark.parametrize("title", ["", "A title"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (12, 12), (60, 2), (200, 200)])
def test_pictures_of_any_shape_fit_and_their_labels_do_not_touch(
    shape: tuple[int, int], title: str
) -> None:
    rows, columns = shape
    scores = np.zeros(shape, dtype=np.float32)
    picture = draw_matrix(scores, sections(rows, title), sections(columns, title))
    assert 0 < picture.columns.length <= 600
    assert picture.margin + picture.columns.length + picture.overhang <= 300 or columns == 200
    assert picture.named == bool(title and max(shape) <= 12)
    for axis in (picture.rows, picture.columns):
        middles = [label.middle for label in axis.labels]
        assert middles
        assert all(below - above >= 13 for above, below in pairwise(middles))
    assert picture.tooltips == (shape != (200, 200))


@pytest.mark.parametrize(
    ("title", "label"),
    [
        *(("Short", "1 Short"), ("  a\nline \n end ", "1 a line end")),
        *(("BoundedSemaphore", "1 BoundedSemap…"), ("文書全体の比較", "1 文書全体の比…")),
        ("twelve chars", "1 twelve chars"),
    ],
)
def test_names_are_cut_to_their_room(title: str, label: str) -> None:
    picture = draw_matrix(np.zeros((1, 1), dtype=np.float32), sections(1, title), sections(1))
    assert picture.rows.labels[0].text == label
    assert picture.columns.labels[0].text == "1"

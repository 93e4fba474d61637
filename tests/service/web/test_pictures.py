"""The map of the passages and the picture of the sections."""

import re
from itertools import pairwise

import numpy as np
import pytest

from encoder.comparison.result import AlignedPassage, Span
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


def test_a_cell_for_each_pair_in_its_row_and_column() -> None:
    scores = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], dtype=np.float32)
    picture = draw_matrix(scores)
    assert [cell.shade for cell in picture.cells] == [1, 2, 3, 4, 5, 6]
    last = picture.cells[-1]
    assert last.x + picture.columns.cell == picture.columns.length
    assert last.y + picture.rows.cell == picture.rows.length
    assert [label.number for label in picture.columns.labels] == [1, 2, 3]


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (12, 12), (60, 2), (200, 200)])
def test_pictures_of_any_shape_fit_and_their_labels_do_not_touch(shape: tuple[int, int]) -> None:
    picture = draw_matrix(np.zeros(shape, dtype=np.float32))
    for sections, axis in zip(shape, (picture.rows, picture.columns), strict=True):
        assert 0 < axis.length <= (600 if sections == 200 else 280)
        middles = [label.middle for label in axis.labels]
        assert middles
        assert all(below - above >= 13 for above, below in pairwise(middles))

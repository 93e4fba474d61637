"""The map of the passages and the picture of the sections."""

import re
from itertools import pairwise

import pytest

from encoder.comparison.result import AlignedPassage, Span
from service.web.report import HEIGHT, SHADES, draw_axis, draw_ribbons, shade_of


def corners(path: str) -> tuple[int, int, int, int]:
    """Left top, left end, right top, right end of a ribbon."""
    found = re.fullmatch(r"M0 (\d+)H9C.* 91 \d+H100V(\d+)H91C.* 9 (\d+)H0Z", path)
    assert found
    top_right = re.search(r" 91 (\d+)H100", path)
    assert top_right
    return int(found[1]), int(found[3]), int(top_right[1]), int(found[2])


def ribbon(left: str, right: str, *spans: tuple[int, int]) -> tuple[int, int, int, int]:
    passage = AlignedPassage(Span(*spans[0]), Span(*spans[1]), 0.5, "similar")
    [path] = draw_ribbons(left, right, [passage])
    return corners(path)


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


@pytest.mark.parametrize("sections", [1, 2, 3, 12, 40, 60, 200])
def test_an_axis_of_any_length_fits_and_its_labels_do_not_touch(sections: int) -> None:
    axis = draw_axis(sections)
    assert axis.length == sections * axis.cell <= (600 if sections == 200 else 280)
    numbers, middles = zip(*axis.labels, strict=True)
    assert [(number - 0.5) * axis.cell for number in numbers] == list(middles)
    assert all(below - above >= 13 for above, below in pairwise(middles))

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evaluation.plots import (
    plot_by_length,
    plot_by_tokens_read,
)
from evaluation.significance import Estimate


def by_tokens(path: Path) -> None:
    plot_by_tokens_read(path, {"one": {512: 0.4, 64: 0.2}, "two": {64: 0.3, 512: 0.3}}, "nDCG@10")


def by_length(path: Path) -> None:
    some = {"<=512": Estimate(0.5, 0.4, 0.6), ">8192": Estimate(0.3, 0.1, 0.4)}
    plot_by_length(path, {"one": some, "two": {">8192": Estimate(0.2, 0.2, 0.2)}}, "nDCG@10")


@pytest.mark.parametrize("draw", [by_tokens, by_length])
def test_a_picture_is_svg_and_the_same_each_time(
    tmp_path: Path, draw: Callable[[Path], None]
) -> None:
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    draw(first)
    draw(second)
    assert first.read_bytes() == second.read_bytes()
    root = ElementTree.fromstring(first.read_bytes())
    assert root.tag.endswith("svg")
    assert "dc:date" not in first.read_text()


def test_another_figure_is_another_picture(tmp_path: Path) -> None:
    for name, figure in (("a", 0.2), ("b", 0.3)):
        plot_by_tokens_read(tmp_path / name, {"one": {64: figure, 128: 0.25}}, "nDCG@10")
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()

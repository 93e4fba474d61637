from pathlib import Path
from xml.etree import ElementTree

from evaluation.plots import plot_by_tokens_read


def test_a_picture_is_svg_that_the_figures_decide(tmp_path: Path) -> None:
    pictures = []
    for number, figure in enumerate((0.2, 0.2, 0.3)):
        path = tmp_path / f"{number}.svg"
        plot_by_tokens_read(path, {"first": {512: 0.4, 64: figure}, "other": {64: 0.3}}, "nDCG@10")
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]
    assert ElementTree.fromstring(pictures[0]).tag.endswith("svg")

"""Triplets in JSON Lines, in the form of CAIL2019-SCM."""

import json
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import json_lines, write
from training.datasets.convert import convert_dataset

TRIPLETS = {
    "train.json": [
        {"A": "原告王某借款。", "B": "被告李某还款。", "C": "房屋租赁。", "label": "B"},
        {"A": "原告王某借款。", "B": "车辆损坏。", "C": "被告李某还款。", "label": "C"},
    ],
    "valid.json": [{"A": "利息约定。", "B": "利率过高。", "C": "合同无效。", "label": "B"}],
    "test.json": [{"A": "民间借贷。", "B": "担保责任。", "C": "借据为证。", "label": "C"}],
}


def write_triplets(folder: Path, lines: dict[str, list[dict[str, str]]]) -> Path:
    for name, some in lines.items():
        write(folder / name, json_lines(some))
    return folder


def test_a_triplet_is_a_matching_pair_and_another(tmp_path: Path) -> None:
    source = write_triplets(tmp_path / "cail", TRIPLETS)
    counts = convert_dataset("cail", source, tmp_path / "out", SilentProgress())
    assert counts["documents"] == 12
    assert counts["documents in pairs of two parts"] == 0
    lines = (tmp_path / "out" / "pairs.train.jsonl").read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == [
        ("train-1-A", "train-1-B", 1),
        ("train-1-A", "train-1-C", 0),
        ("train-2-A", "train-2-B", 0),
        ("train-2-A", "train-2-C", 1),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"A": "a", "B": "b", "C": "c", "label": "A"}, "test.json:1: the label is 'A', not B or C"),
        ({"A": "a", "B": "b", "label": "B"}, "test.json:1: C: is missing"),
        ({"A": "", "B": "b", "C": "c", "label": "B"}, "test.json:1: A: text: is empty"),
        (None, "test.json: holds no pair"),
    ],
)
def test_what_is_no_triplet_is_named(
    tmp_path: Path, line: dict[str, str] | None, message: str
) -> None:
    source = write_triplets(tmp_path / "cail", TRIPLETS | {"test.json": [line] if line else []})
    with pytest.raises(CorpusError, match=message):
        convert_dataset("cail", source, tmp_path / "out", SilentProgress())
    assert not (tmp_path / "out").exists()

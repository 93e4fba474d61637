"""Pairs of texts in CSV, in the form of the benchmark of Zhou et al. (EMNLP 2020)."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import write
from training.datasets.convert import convert_dataset
from training.datasets.pair_tables import read_text_pairs

TEXTS = [
    f'A paper about "{word}", of two lines.\nIts second line.'
    for word in ("rivers", "stones", "music", "engines", "forests", "bridges")
]
ROWS = {
    "train_cite.csv": [("1", TEXTS[0], TEXTS[1]), ("0", TEXTS[0], TEXTS[2])],
    "dev_cite.csv": [("1", TEXTS[3], TEXTS[1])],
    "pla_test.csv": [("0", TEXTS[4], TEXTS[5])],
}


def write_pairs(folder: Path, rows: dict[str, list[tuple[str, str, str]]] = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    for name, some in rows.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(some)
    return folder


def test_equal_texts_of_several_lines_are_one_document(tmp_path: Path) -> None:
    found = read_text_pairs(write_pairs(tmp_path), SilentProgress())
    texts = {document.id: document.text for document in found.documents}
    assert sorted(texts.values()) == sorted(TEXTS)
    read = {
        part: [(str(int(pair.label)), texts[pair.source], texts[pair.target]) for pair in some]
        for part, some in found.pairs.items()
    }
    assert read == dict(zip(("train", "valid", "test"), ROWS.values(), strict=True))


def test_marks_and_names_of_columns_are_no_text(tmp_path: Path) -> None:
    marked = [("Label", "Source Document", "Target Document"), ("1", "\x01It cites. \x01 ", "It.")]
    found = read_text_pairs(
        write_pairs(tmp_path, ROWS | {"train_cite.csv": marked}), SilentProgress()
    )
    assert {document.text for document in found.documents} >= {"It cites.", "It."}
    assert len(found.pairs["train"]) == 1


def test_repeated_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    again = [("0", TEXTS[5], TEXTS[4]), ("1", TEXTS[2], TEXTS[2]), ("1", TEXTS[3], TEXTS[2])]
    rows = ROWS | {"train_cite.csv": [*ROWS["train_cite.csv"], *again]}
    rows["pla_test.csv"] = [*ROWS["pla_test.csv"], ("1", TEXTS[1], TEXTS[5])]
    counts = convert_dataset(
        "pairs", write_pairs(tmp_path / "a", rows), tmp_path / "b", SilentProgress()
    )
    assert counts["left out"] == {
        "pairs of a text with itself": 1,
        "pairs that are there before": 1,
    }
    assert [counts["pairs"][part]["all"] for part in ("train", "valid", "test")] == [4, 1, 1]


def add(*row: str) -> Callable[[Path], object]:
    """Return what appends a row to the training pairs."""

    def change(folder: Path) -> None:
        with (folder / "train_cite.csv").open("a", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerow(row)

    return change


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (add("2", "a", "b"), r"train_cite.csv:7: the label is '2', not 0 or 1"),
        (add("1", "a"), r"train_cite.csv:7: has 2 columns, not label, text, text"),
        (add("1", "a", "\x01"), r"train_cite.csv:7: text: is em"),
        (add("1", TEXTS[2], TEXTS[0]), r"train_cite.csv:9: .* have another label at .*:6"),
        (lambda folder: (folder / "dev_cite.csv").unlink(), r"no file of pairs for valid"),
        (lambda folder: write(folder / "dev_cite.csv", ""), r"dev_cite.csv: holds no pair"),
        (lambda folder: write(folder / "dev_cite.csv", '1,"a'), r"dev_cite.csv:1: is not CSV"),
        (lambda folder: write(folder / "dev_cite.csv", b"1,a\xff,b"), r"dev_cite.csv: is not UTF"),
        (lambda folder: write(folder / "dev_2.csv", "1,a,b"), r"dev_cite.csv: dev_2.csv is for v"),
        (lambda folder: write(folder / "x.csv", "1,a,b"), r"x.csv: the name says none of train"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, change: Callable[[Path], object], error: str
) -> None:
    change(write_pairs(tmp_path))
    with pytest.raises(CorpusError, match=error):
        read_text_pairs(tmp_path, SilentProgress())

from pathlib import Path

import pytest

from evaluation.judgements import read_splits
from index.errors import CorpusError


def test_reads_parts_of_ids_that_may_have_spaces(tmp_path: Path) -> None:
    path = tmp_path / "splits.tsv"
    path.write_text("a b\ttrain\n\nc\tvalid\nd\ttest\nd\ttest\n")
    assert read_splits(path) == {"a b": "train", "c": "valid", "d": "test"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no document"),
        ("a train\n", ":1: is not a document id, a tab"),
        ("a\ttrain\tx\n", ":1: is not a document id"),
        ("\ttrain\n", ":1: is not a document id"),
        ("a\ttrain\nb\tdev\n", ":2: the part 'dev' is none of train, valid, test"),
        ("a\ttrain\na\ttest\n", ":2: 'a' is already in train"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "splits.tsv"
    path.write_text(text)
    with pytest.raises(CorpusError, match=message):
        read_splits(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no such file"):
        read_splits(tmp_path / "splits.tsv")

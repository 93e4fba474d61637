import gzip
import json
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.pairs import find_pairs, read_pairs


def line(source: object, target: object, label: object) -> str:
    return json.dumps({"source": source, "target": target, "label": label}) + "\n"


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_reads_pairs_in_order_and_finds_their_rows(tmp_path: Path, name: str) -> None:
    text = line("a", "b", 1) + "\n" + line("b", 3, 0) + line("b", "a", 1) + line("a", "b", 1)
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    path = tmp_path / name
    path.write_bytes(data)
    pairs = read_pairs(path)
    assert [(one.source, one.target, one.label) for one in pairs] == [
        ("a", "b", True),
        ("b", "3", False),
        ("b", "a", True),  # the other direction is another pair; the repetition is none
    ]
    assert pairs[1].where == f"{path}:3"
    rows = find_pairs(pairs, ["3", "b", "a"])
    assert rows.sources.tolist() == [2, 1, 1]
    assert rows.targets.tolist() == [1, 0, 2]
    assert rows.labels.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no pair"),
        ("\n \n", "holds no pair"),
        ("{oops\n", r":1: is not JSON"),
        ("[1]\n", ":1: is not a JSON object"),
        ('{"source": "a", "target": "b"}\n', ":1: label: is missing"),
        ('{"source": "a", "label": 1}\n', ":1: target: is missing"),
        (line("a", "", 1), ":1: target: is not a document id"),
        (line(True, "b", 1), ":1: source: is not a document id"),
        (line("a", "b", 2), ":1: label: is '2', not 0 or 1"),
        (line("a", "b", "1"), ":1: label: is '1', not 0 or 1"),
        (line("a", "b", None), ":1: label: is 'None', not 0 or 1"),
        (line("a", "b", 1) + line("c", "c", 0), ":2: 'c' is paired with itself"),
        (line("a", "b", 1) + line("a", "b", 0), ":2: .* the label 0 here and 1 at .*:1"),
        (line("a", "b", 1) + line("b", "a", 0), ":2: .* the label 0 here and 1 at .*:1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(CorpusError, match=message):
        read_pairs(path)


def test_a_missing_file_and_a_missing_document(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with pytest.raises(CorpusError, match="there is no such file"):
        read_pairs(path)
    path.write_text(line("a", "b", 1) + line("a", "c", 0))
    with pytest.raises(CorpusError, match=":2: the corpus has no document 'c'"):
        find_pairs(read_pairs(path), ["a", "b"])

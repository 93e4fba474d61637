import gzip
import json
import re
from pathlib import Path

import pytest

from evaluation.judgements import find_pairs, read_pairs, read_qrels, read_splits
from index.errors import CorpusError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_judgements_of_trec_and_of_beir_under_their_header(tmp_path: Path) -> None:
    trec = "q1\t0\td 1\t2\nq1\t0\td 1\t2\nq1 0 d2 0\n\n  q2   Q0  d1  -1 \r\nq1\t0\td3\t1"
    read = read_qrels(write(tmp_path / "qrels.txt", trec))
    assert read == {"q1": {"d 1": 2, "d2": 0, "d3": 1}, "q2": {"d1": -1}}
    beir = "\ufeffquery-id\tcorpus-id\tscore\nq1\td 1\t1\nq2\td2\t0\n"
    assert read_qrels(write(tmp_path / "t.tsv", beir)) == {"q1": {"d 1": 1}, "q2": {"d2": 0}}


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("q 0 d 1\nq 0 d\n", 2, "3 columns, not query, 0, document, relevance"),
        ("q d 1\n", 1, "after the header"),
        ("query-id corpus-id score\nq 0 d 1\n", 2, "4 columns, not query, document, relevance"),
        ("q 0 d ٣\n", 1, "the relevance '٣' is not an integer"),
        ("q 0 d " + "9" * 5000, 1, "not an integer"),
        ("q\t0\t\t1\n", 1, "an id is empty"),
        ("q 0 d 1\n\nq 0 d 2\n", 3, "the relevance of 'd' for 'q' is 2, but 1 in an earlier line"),
        (b"q 0 d 1\nq 0 \xff 1\n", 2, "is not UTF-8 at byte 4 of the line"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str | bytes, line: int, message: str) -> None:
    with pytest.raises(CorpusError, match=re.escape(message)) as caught:
        read_qrels(write(tmp_path / "qrels.tsv", content))
    assert f"qrels.tsv:{line}: " in str(caught.value)


def test_a_cut_off_gzip_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"q%d 0 d 1\n" % number for number in range(1000)))
    with pytest.raises(CorpusError, match=r"qrels\.gz:\d+: the file is cut off here"):
        read_qrels(write(tmp_path / "qrels.gz", packed[:-20]))


@pytest.mark.parametrize("content", ["", "\n \n", "query-id\tcorpus-id\tscore\n"])
def test_a_file_without_a_judgement_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(CorpusError, match="holds no judgement"):
        read_qrels(write(tmp_path / "qrels.tsv", content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for read in (read_qrels, read_splits, read_pairs):
        with pytest.raises(CorpusError, match="there is no such file"):
            read(tmp_path / "missing.tsv")
        with pytest.raises(CorpusError, match="cannot be read"):
            read(tmp_path)


def line(source: object, target: object, label: object) -> str:
    return json.dumps({"source": source, "target": target, "label": label}) + "\n"


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_reads_pairs_in_order_and_finds_their_rows(tmp_path: Path, name: str) -> None:
    text = line("a", "b", 1) + "\n" + line("b", 3, 0) + line("b", "a", 1) + line("a", "b", 1)
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text
    path = write(tmp_path / name, data)
    pairs = read_pairs(path)
    assert [(pair.source, pair.target, pair.label) for pair in pairs] == [
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
        ("{oops\n", r":1: is not JSON"),
        ("[1]\n", ":1: is not a JSON object"),
        ('{"source": "a", "label": 1}\n', ":1: target: is missing"),
        (line(True, "b", 1), ":1: source: is true or false, not text or an integer"),
        (line("a", "b", 2), ":1: label: is '2', not 0 or 1"),
        (line("a", "b", 1) + line("c", "c", 0), ":2: 'c' is paired with itself"),
        (line("a", "b", 1) + line("a", "b", 0), ":2: .* the label 0 here and 1 at .*:1"),
        (line("a", "b", 1) + line("b", "a", 0), ":2: .* the label 0 here and 1 at .*:1"),
    ],
)
def test_a_bad_pair_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_pairs(write(tmp_path / "p.jsonl", text))


def test_a_missing_document_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", line("a", "b", 1) + line("a", "c", 0))
    with pytest.raises(CorpusError, match=":2: the corpus has no document 'c'"):
        find_pairs(read_pairs(path), ["a", "b"])


def test_reads_parts_of_ids_that_may_have_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "splits.tsv", "a b\ttrain\n\nc\tvalid\nd\ttest\nd\ttest\n")
    assert read_splits(path) == {"a b": "train", "c": "valid", "d": "test"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no document"),
        ("a\ttrain\tx\n", ":1: is not a document id, a tab"),
        ("\ttrain\n", ":1: is not a document id"),
        ("a\ttrain\nb\tdev\n", ":2: the part 'dev' is none of train, valid, test"),
        ("a\ttrain\na\ttest\n", ":2: 'a' is already in train"),
    ],
)
def test_a_bad_split_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_splits(write(tmp_path / "splits.tsv", text))

from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import write
from training.data.corpus_folder import DataSet
from training.datasets.citations import body, read_citations

PAPER = """Parsing with {}

Abstract
We parse.

1 Introduction
Paper {} is on grammars of languages and on how they are parsed.

2 Results
It works.

References
Another, A. 2001. Citations that give it away.
"""


def write_network(folder: Path, papers: int = 12) -> Path:
    for number in range(papers):
        write(folder / f"papers_text/P{number}.txt", PAPER.format(number, number))
    lines = [f"P{n} ==> P{n + step}" for n in range(papers - 2) for step in (1, 2)]
    write(folder / "release/2013/acl.txt", "P0 ==> P1\n")
    write(folder / "release/2014/acl.txt", "\n".join(lines) + "\n")
    titles = "".join(f"P{n}\tParsing with {n}\t2001\n" for n in range(papers))
    write(folder / "release/2014/paper_ids.txt", titles)
    return folder


def labels_of(found: DataSet) -> dict[str, list[tuple[str, str, bool]]]:
    return {
        part: [(pair.source, pair.target, pair.label) for pair in some]
        for part, some in found.pairs.items()
    }


def test_a_body_has_no_abstract_and_no_references() -> None:
    assert body(PAPER.format("X", "X")) == (
        "Parsing with X\n\n1 Introduction\nPaper X is on grammars of languages and on how they "
        "are parsed.\n\n2 Results\nIt works."
    )


def test_a_body_without_such_headings_is_whole() -> None:
    text = "References are discussed in this abstract paper.\nIt ends."
    assert body(text) == text


def test_citations_of_the_newest_release_are_pairs(tmp_path: Path) -> None:
    found = read_citations(write_network(tmp_path), SilentProgress())
    documents = {document.id: document for document in found.documents}
    assert documents["P3"].title == "Parsing with 3"
    assert "give it away" not in documents["P3"].text
    pairs = [pair for some in found.pairs.values() for pair in some]
    matching = {(pair.source, pair.target) for pair in pairs if pair.label}
    assert matching == {(f"P{n}", f"P{n + step}") for n in range(10) for step in (1, 2)}
    others = {(pair.source, pair.target) for pair in pairs if not pair.label}
    assert len(others) == len(matching)
    assert not others & (matching | {(b, a) for a, b in matching})
    assert [len(found.pairs[part]) for part in ("train", "valid", "test")] == [32, 4, 4]


def test_lists_of_pairs_are_used_as_they_are(tmp_path: Path) -> None:
    folder = write_network(tmp_path)
    write(folder / "acl_train.tsv", "1\tP0\tP1\n0\tP0\tP5\n1\tP2\tunknown\n")
    write(folder / "acl_dev.tsv", "1\tP1\tP2\n")
    write(folder / "acl_test.tsv", "0\tP1\tP9\n")
    found = read_citations(folder, SilentProgress())
    assert labels_of(found) == {
        "train": [("P0", "P1", True), ("P0", "P5", False)],
        "valid": [("P1", "P2", True)],
        "test": [("P1", "P9", False)],
    }
    assert found.left_out["pairs without a text"] == 1


def test_lists_with_texts_need_no_other_file(tmp_path: Path) -> None:
    """The form of the Long Range Arena."""
    paper = "A {} of grammars\tand more."
    rows = [("1.0", "P0", "P1"), ("0.0", "P0", "P2"), ("1", "P1", "P2"), ("0.0", "P3", "P0")]
    for part, some in {"train": rows[:2], "eval": rows[2:3], "test": rows[3:]}.items():
        lines = [(*row, *(f'"{paper.format(name)}"' for name in row[1:])) for row in some]
        write(tmp_path / f"aan_pairs.{part}.tsv", "".join("\t".join(line) + "\n" for line in lines))
    found = read_citations(tmp_path, SilentProgress())
    assert {document.id: document.text for document in found.documents} == {
        name: paper.format(name) for name in ("P0", "P1", "P2", "P3")
    }
    assert labels_of(found) == {
        "train": [("P0", "P1", True), ("P0", "P2", False)],
        "valid": [("P1", "P2", True)],
        "test": [("P3", "P0", False)],
    }
    write(tmp_path / "aan_pairs.train.tsv", "1.0\tP0\tP1\ttext\n")
    with pytest.raises(CorpusError, match=r"train.tsv:1: has 4 columns, not label, id, id"):
        read_citations(tmp_path, SilentProgress())


def test_a_paper_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    folder = write_network(tmp_path)
    write(folder / "papers_text/P4.txt", b"caf\xe9")
    found = read_citations(folder, SilentProgress())
    assert "P4" not in {document.id for document in found.documents}
    assert found.left_out["papers that are not UTF-8"] == 1
    assert found.left_out["citations without a text"] == 4


def test_a_title_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    folder = write_network(tmp_path)
    write(folder / "release/2014/paper_ids.txt", b"P1\tcaf\xe9\t2001\nP2\tA title\t2001\n")
    titles = {
        document.id: document.title
        for document in read_citations(folder, SilentProgress()).documents
    }
    assert (titles["P1"], titles["P2"]) == ("", "A title")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("release/2014/acl.txt", "P0 ==> P1\nP0 P2\n", r"acl.txt:2: is not 'paper ==> cited"),
        ("release/2014/paper_ids.txt", "P0\tonly\n", r"paper_ids.txt:1: has 2 columns, not paper"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, error: str) -> None:
    folder = write_network(tmp_path)
    write(folder / name, content)
    with pytest.raises(CorpusError, match=error):
        read_citations(folder, SilentProgress())


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no folder papers_text"):
        read_citations(tmp_path, SilentProgress())
    write(tmp_path / "papers_text/P0.txt", "text")
    with pytest.raises(CorpusError, match=r"there is no acl.txt, nor lists of pairs"):
        read_citations(tmp_path, SilentProgress())

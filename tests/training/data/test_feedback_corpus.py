"""The corpus of feedback: no text of a held-out query is in training."""

from pathlib import Path

import pytest

import training.data.feedback_corpus
from evaluation.fitting.judged_queries import JudgedQuery
from evaluation.judgements import read_pairs, read_qrels, read_splits
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.store.document_store import DocumentStore
from tests.kit.index_fixtures import MakeEntry
from training.data.feedback_corpus import write_feedback_corpus
from training.data.files import find_corpus_files
from training.data.pair_files import check_equal_texts, read_labelled_pairs

QUERIES = 60


def text(name: str) -> str:
    """The text of a document: `copy7` has that of `q7`."""
    return f"The text of {name.replace('copy', 'q')}."


@pytest.fixture
def filled(store: DocumentStore, entry: MakeEntry) -> DocumentStore:
    names = [f"{kind}{n}" for kind in ("q", "a", "copy", "other") for n in range(QUERIES)]
    store.put([entry(name, text(name), title=name) for name in names])
    return store


def judged(*, negative: bool = True) -> list[JudgedQuery]:
    """Queries of documents and of texts, each with a relevant answer of its own and the hub."""
    found = []
    for number in range(QUERIES):
        grades = {f"a{number}": 2}
        if negative:
            grades |= {"a0": 0} if number else {}
        keys = {name: text(name) for name in grades}
        if number % 2:
            name = f"q{number}"
            found.append(JudgedQuery(name, "", "", text(name), grades, keys))
        else:
            asked = f"What is {number}?"
            found.append(JudgedQuery(None, asked, "A question", asked, grades, keys))
    return found


def documents(folder: Path) -> dict[str, Document]:
    read = [document for document in read_corpus(folder) if isinstance(document, Document)]
    found = {document.id: document for document in read}
    assert len(found) == len(read)
    return found


def test_what_training_reads(filled: DocumentStore, tmp_path: Path) -> None:
    counts = write_feedback_corpus(tmp_path / "out", filled, judged())
    files = find_corpus_files(tmp_path / "out")
    assert None not in (files.qrels, files.splits)
    found = documents(tmp_path / "out")
    parts = read_splits(tmp_path / "out" / "splits.tsv")
    assert parts.keys() == found.keys()
    assert counts["documents"] == len(found)
    held_out = {name for name, part in parts.items() if part == "valid"}
    assert len([name for name in held_out if name[0] in "qf"]) == counts["queries"]["valid"] == 12
    # Copies of held-out texts are left out, those of others are there.
    check_equal_texts(
        (name, document.content_hash.hex(), ("train", "valid").index(parts[name]))
        for name, document in found.items()
    )
    for number in range(1, QUERIES, 2):
        assert (f"copy{number}" in found) == (f"q{number}" not in held_out)
        assert parts[f"a{number}"] == parts[f"q{number}"]
    assert all(f"other{number}" in found for number in range(QUERIES))
    read_labelled_pairs(files)
    pairs = read_pairs(tmp_path / "out" / "pairs.jsonl")
    assert {(parts[pair.source], parts[pair.target]) for pair in pairs} == {
        ("train", "train"),
        ("valid", "valid"),
    }
    qrels = read_qrels(tmp_path / "out" / "qrels.tsv")
    assert len(qrels) == QUERIES
    assert sorted(qrels["q1"].items()) == [("a0", 0), ("a1", 2)]
    assert found["q1"].title == "q1"
    assert {document.text for document in found.values() if document.title == "A question"} == {
        f"What is {number}?" for number in range(0, QUERIES, 2)
    }


def test_without_a_verdict_of_one_kind_there_are_no_pairs(
    filled: DocumentStore, tmp_path: Path
) -> None:
    counts = write_feedback_corpus(tmp_path / "out", filled, judged(negative=False))
    assert not counts["pairs used"]
    assert find_corpus_files(tmp_path / "out").pairs == ()


def test_of_two_verdicts_on_one_pair_relevant_counts(filled: DocumentStore, tmp_path: Path) -> None:
    both = judged()
    for source, target, grade in (("q1", "q3", 0), ("q3", "q1", 1)):
        keys = {target: text(target)}
        both = [query for query in both if query.document_id != source]
        both.append(JudgedQuery(source, "", "", text(source), {target: grade}, keys))
    write_feedback_corpus(tmp_path / "out", filled, both)
    pairs = read_pairs(tmp_path / "out" / "pairs.jsonl")
    assert [pair.label for pair in pairs if pair.ends == ("q1", "q3")] == [True]


def test_others_are_bounded(
    filled: DocumentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.data.feedback_corpus, "OTHERS", 10)
    counts = write_feedback_corpus(tmp_path / "out", filled, judged())
    assert counts["documents"] <= counts["documents with feedback"] + 10


def test_too_few_queries_are_refused_and_leave_nothing(
    filled: DocumentStore, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match="12 queries with a relevant match in the part 'train'"):
        write_feedback_corpus(tmp_path / "out", filled, judged()[:15])
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]

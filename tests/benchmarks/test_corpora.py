"""Corpora of the study on unseen texts: who is relevant to whom, and what gives a pair away."""

from pathlib import Path

from benchmarks.quality.corpora import Corpus, guides, write
from evaluation.judgements import read_qrels, read_splits
from index.corpus.reader import read_documents


def test_parts_by_other_translators_are_relevant(tmp_path: Path) -> None:
    corpus = Corpus()
    names = ["a/1", "b/1", "a/2", "b/2", "c/9"]
    assert all(corpus.add(name, f"{name} " * 200) for name in names)
    assert not corpus.add("b/3", "too short")
    corpus.relate([["a/1", "b/1", "b/3"], ["a/2", "b/2"]], lambda name: name[0])
    write(corpus, tmp_path / "out")
    judged = read_qrels(tmp_path / "out" / "qrels.tsv")
    assert {query: set(found) for query, found in judged.items()} == {
        "a/1": {"b/1"}, "b/1": {"a/1"}, "a/2": {"b/2"}, "b/2": {"a/2"},
    }  # fmt: skip
    parts = read_splits(tmp_path / "out" / "splits.tsv")
    assert parts["c/9"] == "train"
    assert {parts[name] for name in names[:4]} == {"valid"}


def test_the_name_of_a_module_is_masked_in_guides(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    page = tmp_path / "library" / "shelve.html"
    page.write_text("<h1>shelve</h1><p>" + "A shelve keeps objects. " * 60, encoding="utf-8")
    article = tmp_path / "pymotw-3" / "source" / "shelve" / "index.rst"
    article.parent.mkdir(parents=True)
    article.write_text(".. module:: shelve\n\n" + "Use ``shelve`` for files. " * 60)
    write(guides(tmp_path), tmp_path / "out")
    names = ["library/shelve.html", "pymotw/shelve/index.rst"]
    texts = [d.text for d in read_documents(tmp_path / "out" / "corpus.jsonl.gz", names)]
    assert [("shelve" in text, text.count("_") > 50) for text in texts] == [(False, True)] * 2
    assert set(read_qrels(tmp_path / "out" / "qrels.tsv")) == set(names)

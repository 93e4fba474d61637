"""The command dataset: data sets of our own in the form of published ones become corpora."""

import json
from pathlib import Path

import pytest

from index.corpus.reader import read_corpus
from index.document import Document
from tests.tools.chinese_news import news_lines, write_news
from tests.tools.command import Run
from tests.tools.corpora import write
from training.data.corpus import CorpusFiles
from training.data.files import find_corpus_files
from training.data.pair_files import check_pair_files
from training.datasets.convert import DATASETS


def found_in(folder: Path) -> CorpusFiles:
    return find_corpus_files(folder)


def test_pairs_become_a_corpus_that_training_reads(longmatch: Run, tmp_path: Path) -> None:
    source, output = write_news(tmp_path / "same_event_doc_pair.txt"), tmp_path / "cnse"
    answer = longmatch("lab", "dataset", "cnse", source, "-o", output)
    assert answer.status == 0, answer.err
    assert "12 documents" in answer.err
    assert "train with --allow-shared-documents" in answer.err
    assert "licence of the data: unclear" in answer.err
    files = found_in(output)
    assert [path.name for path in files.pairs] == [
        *("pairs.train.jsonl", "pairs.valid.jsonl", "pairs.test.jsonl")
    ]
    check_pair_files(files, allow_shared=True)
    assert all(isinstance(item, Document) for item in read_corpus(output))
    counts = json.loads((output / "counts.json").read_text())
    assert counts["pairs"]["train"] == {"matching": 4, "all": 11}


def test_the_same_data_and_seed_make_the_same_files(longmatch: Run, tmp_path: Path) -> None:
    source = write_news(tmp_path / "pairs.txt")
    for name in ("one", "two"):
        assert longmatch("lab", "dataset", "cnss", source, "-o", tmp_path / name).status == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_collection_becomes_one_that_evaluate_reads(longmatch: Run, tmp_path: Path) -> None:
    text = "The harbour of the town was opened to ships in the spring. "
    docs = (f"<DOC>\n<DOCNO>D{n}</DOCNO>\n<TEXT>{text * n} {n}</TEXT>\n</DOC>\n" for n in range(4))
    source = tmp_path / "source"
    write(source / "documents/a", "".join(docs))
    write(source / "topics.txt", "<top><num> Number: 1 <title> Harbour of the town </top>")
    write(source / "qrels.txt", "1 0 D2 1\n1 0 D3 0\n")
    output = tmp_path / "trec"
    refused = longmatch("lab", "dataset", "trec", source, "-o", output)
    assert refused.status == 2
    assert refused.err.startswith("error: --accept-licence: is needed for trec: ")
    assert not output.exists()
    answer = longmatch("lab", "dataset", "trec", source, "-o", output, "--accept-licence")
    assert answer.status == 0, answer.err
    queries = output / "queries.jsonl.gz"
    measured = longmatch("evaluate", output, output / "qrels.tsv", "--queries", queries, "--json")
    assert measured.status == 0, measured.err
    assert json.loads(measured.out)["retrieval"]


@pytest.mark.parametrize("name", DATASETS)
def test_a_missing_source_is_an_error(longmatch: Run, tmp_path: Path, name: str) -> None:
    output = tmp_path / "out"
    missing = tmp_path / "missing"
    answer = longmatch("lab", "dataset", name, missing, "-o", output, "--accept-licence")
    assert answer.status == 2
    assert answer.err.startswith(f"error: SOURCE: {missing}: there is no such f")
    assert not output.exists()


def test_a_wrong_line_leaves_nothing_behind(longmatch: Run, tmp_path: Path) -> None:
    source, output = tmp_path / "pairs.txt", tmp_path / "out"
    source.write_text("\n".join([*news_lines(), "1|a|b"]), encoding="utf-8")
    answer = longmatch("lab", "dataset", "cnse", source, "-o", output)
    assert answer.status == 2
    assert f"error: {source}:20: has 3 columns" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.txt"]


def test_a_line_that_is_wrong_while_writing_leaves_nothing_behind(
    longmatch: Run, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    write(source / "corpus.jsonl", '{"_id": "a", "text": "b"}\n{"_id": "b", "text": 5}\n')
    write(source / "queries.jsonl", '{"_id": "q", "text": "b"}\n')
    write(source / "qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\ta\t1\n")
    answer = longmatch("lab", "dataset", "beir", source, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "corpus.jsonl:2: text: is a number, not text" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_existing_output_is_never_replaced(longmatch: Run, tmp_path: Path) -> None:
    source, output = write_news(tmp_path / "pairs.txt"), tmp_path / "out"
    output.mkdir()
    answer = longmatch("lab", "dataset", "cnse", source, "-o", output)
    assert answer.status == 2
    assert answer.err == f"error: --output: {output}: exists already, and is never replaced\n"
    unknown = longmatch("lab", "dataset", "imagenet", source, "-o", tmp_path / "new")
    assert unknown.err.startswith("error: NAME: 'imagenet' is none of aan, wiki65k")

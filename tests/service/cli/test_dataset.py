"""The command dataset: data sets of our own in the form of published ones become corpora."""

import json
from pathlib import Path

from index.corpus.reader import read_corpus
from index.document import Document
from tests.kit.chinese_news import write_news
from tests.kit.command import Run
from tests.kit.corpora import write
from training.data.files import find_corpus_files
from training.data.pair_files import read_labelled_pairs


def test_pairs_become_a_corpus_that_training_reads(longmatch: Run, tmp_path: Path) -> None:
    source, output = write_news(tmp_path / "same_event_doc_pair.txt"), tmp_path / "cnse"
    answer = longmatch("lab", "dataset", "cnse", source, "-o", output)
    assert answer.status == 0, answer.err
    assert "12 documents" in answer.err
    assert "train with --allow-shared-documents" in answer.err
    assert "licence of the data: unclear" in answer.err
    files = find_corpus_files(output)
    names = [f"pairs.{part}.jsonl" for part in ("train", "valid", "test")]
    assert [path.name for path in files.pairs] == names
    read_labelled_pairs(files, allow_shared=True)
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
    answer = longmatch("lab", "dataset", "trec", source, "-o", output, "--accept-licence")
    assert answer.status == 0, answer.err
    queries = output / "queries.jsonl.gz"
    measured = longmatch("evaluate", output, output / "qrels.tsv", "--queries", queries, "--json")
    assert measured.status == 0, measured.err
    assert json.loads(measured.out)["retrieval"]


def test_a_wrong_line_leaves_nothing_behind(longmatch: Run, tmp_path: Path) -> None:
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

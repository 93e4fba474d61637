"""Collections with queries, those of TREC and BEIR."""

import gzip
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import json_lines, write
from training.datasets.beir import read_beir
from training.datasets.trec import read_collection

DOCS = """<DOC>
<DOCNO> FT911-1 </DOCNO>
<PROFILE>_AN-BENBQAD8FT</PROFILE>
<HEADLINE>
FT  Harbour reopens
</HEADLINE>
<TEXT>
The harbour &amp; the quay reopened.
<P>Ships return.</P>
</TEXT>
</DOC>
<DOC>
<DOCNO>FT911-2</DOCNO>
<TEXT>Caf\xe9 prices rise.</TEXT>
</DOC>
<DOC>
<DOCNO>FT911-3</DOCNO>
<TEXT> </TEXT>
</DOC>
"""
TOPICS = """<top>

<num> Number: 051
<title> Topic: Harbours

<desc> Description:
Which harbours reopened?

<narr> Narrative:
A relevant document names
a harbour.
</top>
<top><num> 52 </num><title>Prices</title><desc>What rises?</desc></top>
<top><num> Number: 53 <title> Not judged </top>
"""


def write_trec(folder: Path) -> Path:
    write(folder / "documents/ft/ft911_1", DOCS.encode("latin-1"))
    write(folder / "topics.51-53", TOPICS)
    write(folder / "qrels.51-53.txt", "51 0 FT911-1 1\n51 0 FT911-2 0\n52 0 FT911-2 2\n")
    return folder


def test_a_trec_collection_is_read(tmp_path: Path) -> None:
    found = read_collection(write_trec(tmp_path), SilentProgress())
    first, second = found.documents
    assert (first.id, first.title) == ("FT911-1", "FT Harbour reopens")
    assert first.text.endswith("The harbour & the quay reopened.\n\nShips return.")
    assert "FT911-1" not in first.text
    assert (second.id, second.text) == ("FT911-2", "Café prices rise.")
    assert [(query.id, query.text) for query in found.queries] == [
        ("51", "Harbours\n\nWhich harbours reopened?\n\nA relevant document names a harbour."),
        ("52", "Prices\n\nWhat rises?"),
    ]
    judged = [("51", "FT911-1", 1), ("51", "FT911-2", 0), ("52", "FT911-2", 2)]
    assert list(found.judgements) == judged


def test_gzip_is_read(tmp_path: Path) -> None:
    folder = write_trec(tmp_path)
    path = folder / "documents/ft/ft911_1"
    write(path.with_suffix(".gz"), gzip.compress(path.read_bytes()))
    path.unlink()
    assert len(list(read_collection(folder, SilentProgress()).documents)) == 2


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("documents/ft/ft911_1", "<DOC>\n<DOCNO>1</DOCNO>\n", "ft911_1:1: <DOC> has no </DOC>"),
        ("documents/ft/ft911_1", "<DOC>\n<DOC>\n", "ft911_1:2: <DOC> before the </DOC> of line 1"),
        ("documents/ft/ft911_1", "<DOC>\n<TEXT>a</TEXT>\n</DOC>", "ft911_1:1: has no <DOCNO>"),
        ("documents/ft/ft911_1", "text", "holds no <DOC>"),
        (
            "documents/ft/ft911_1.gz",
            gzip.compress(b"<DOC>" * 99, mtime=0)[:20],
            "is damaged or cut off",
        ),
        ("documents/ft/again", "<DOC>\n<DOCNO>FT911-1</DOCNO>a\n</DOC>", "FT911-1' already occurs"),
        ("documents/ft/ft.Z", b"\x1f\x9d", "ft.Z: is compressed: expand it"),
        ("topics.51-53", "<top><title> x </top>", "topics.51-53: a topic has no <num>"),
        ("topics.51-53", "51 harbours", "topics.51-53: holds no <top>"),
        ("qrels.51-53.txt", "99 0 FT911-1 1\n", "has no topic '99', which is judged"),
    ],
)
def test_what_is_wrong_with_trec_is_named(
    tmp_path: Path, name: str, content: str | bytes, error: str
) -> None:
    write(write_trec(tmp_path) / name, content)
    with pytest.raises(CorpusError, match=error):
        list(read_collection(tmp_path, SilentProgress()).documents)


def test_missing_parts_of_trec_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="documents: there is no such folder"):
        read_collection(tmp_path, SilentProgress())
    write(tmp_path / "documents/a", DOCS.encode("latin-1"))
    with pytest.raises(CorpusError, match=r"there is no file topics\*"):
        read_collection(tmp_path, SilentProgress())


def write_beir(folder: Path) -> Path:
    documents = [{"_id": f"d{n}", "title": "", "text": f"Text {n}", "url": "x"} for n in range(5)]
    write(folder / "corpus.jsonl", json_lines(documents))
    queries = [{"_id": f"q{n}", "text": f"Query {n}"} for n in range(4)]
    write(folder / "queries.jsonl", json_lines(queries))
    header = "query-id\tcorpus-id\tscore\n"
    write(folder / "qrels/train.tsv", f"{header}q0\td0\t1\n")
    write(folder / "qrels/dev.tsv", f"{header}q1\td1\t2\nq1\td2\t0\n")
    write(folder / "qrels/test.tsv", f"{header}q2\td3\t1\n")
    return folder


def test_a_beir_collection_is_read(tmp_path: Path) -> None:
    found = read_beir(write_beir(tmp_path), SilentProgress())
    assert [document.id for document in found.documents] == ["d0", "d1", "d2", "d3", "d4"]
    assert [query.id for query in found.queries] == ["q0", "q1", "q2"]
    assert found.parts == {"q0": "train", "q1": "valid", "q2": "test"}
    judged = {("q0", "d0", 1), ("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d3", 1)}
    assert set(found.judgements) == judged


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (
            "qrels/train.tsv",
            "query-id\tcorpus-id\tscore\nq1\td0\t1\n",
            "'q1' is judged in dev.tsv",
        ),
        ("qrels/train.tsv", "query-id\tcorpus-id\tscore\nq9\td0\t1\n", "has no query 'q9'"),
        ("corpus.jsonl", '{"_id": "a", "text": "b"}\n{"_id": "c"}\n', "corpus.jsonl:2: text: is m"),
        ("corpus.jsonl", '{"_id": "a", "text": "b"}\n' * 2, "corpus.jsonl:2: the id 'a' already"),
    ],
)
def test_what_is_wrong_with_beir_is_named(
    tmp_path: Path, name: str, content: str, error: str
) -> None:
    write(write_beir(tmp_path) / name, content)
    with pytest.raises(CorpusError, match=error):
        list(read_beir(tmp_path, SilentProgress()).documents)


def test_missing_parts_of_beir_are_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path)
    for name in ("qrels/train.tsv", "qrels/dev.tsv", "qrels/test.tsv"):
        (folder / name).unlink()
    with pytest.raises(CorpusError, match=r"there is no file of judgements qrels/\*.tsv"):
        read_beir(folder, SilentProgress())
    (folder / "queries.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"there is no queries.jsonl"):
        read_beir(folder, SilentProgress())

"""Corpora by URL, read through fsspec: in its memory, and on the disk as if that were elsewhere."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from index.corpus.reader import count_documents, read_corpus
from index.corpus.remote import open_remote
from index.document import Document, SkippedInput
from index.errors import CorpusError
from tests.kit.command import Run

LINES = b"".join(
    json.dumps({"id": f"d{number}", "text": f"Text {number}.", "year": number}).encode() + b"\n"
    for number in range(3)
)


@pytest.fixture
def bucket() -> Iterator[Any]:
    """An empty folder of fsspec's file system in memory: `memory://bucket`."""
    system = fsspec.filesystem("memory")
    system.makedirs("/bucket", exist_ok=True)
    yield system
    system.rm("/bucket", recursive=True)


def read(url: str) -> list[Document | SkippedInput]:
    """Read a corpus, of which as much is counted."""
    items = list(read_corpus(open_remote(url)))
    assert count_documents(open_remote(url)) == len(items)
    return items


def ids(items: list[Document | SkippedInput]) -> list[str]:
    return [item.id if isinstance(item, Document) else item.where for item in items]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz", "part.ndjson"])
def test_json_lines_are_read_as_they_arrive(bucket: Any, name: str) -> None:
    data = LINES + b"nonsense\n"
    bucket.pipe(f"/bucket/{name}", gzip.compress(data) if name.endswith(".gz") else data)
    items = read(f"memory://bucket/{name}")
    assert ids(items) == ["d0", "d1", "d2", f"{name}:4"]
    assert items[1] == Document("d1", "Text 1.", metadata={"year": 1})


def test_a_connection_that_breaks_is_reported(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.pipe("/bucket/x.jsonl", LINES)

    def broken(*_: object) -> io.BytesIO:
        raise PermissionError("Access Denied")

    corpus = read_corpus(open_remote("memory://bucket/x.jsonl"))
    monkeypatch.setattr(type(bucket), "open", broken)
    assert list(corpus) == [SkippedInput("x.jsonl:1", "cannot be read: Access Denied")]


def test_parquet_is_read(bucket: Any) -> None:
    table = pa.table({"id": ["a", "b"], "text": ["Rivers.", None], "year": [1, 2]})
    with bucket.open("/bucket/x.parquet", "wb") as file:
        pq.write_table(table, file)
    items = read("memory://bucket/x.parquet")
    assert items[0] == Document("a", "Rivers.", metadata={"year": 1})
    assert ids(items) == ["a", "x.parquet: row 2"]


def test_a_folder_is_read_at_any_depth_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    (tmp_path / "rivers.md").write_text("# Rivers\n\nRivers carry stones.")
    (tmp_path / "deep" / "music.txt").write_text("Music has notes.")
    (tmp_path / "deep" / "empty.txt").write_text(" ")
    (tmp_path / "deep" / ".hidden" / "x.txt").write_text("Hidden.")
    (tmp_path / "picture.png").write_bytes(b"png")
    items = read(f"file://{tmp_path}/")
    assert ids(items) == ["deep/empty.txt", "deep/music.txt", "rivers.md"]
    assert items[1:] == list(read_corpus(tmp_path))[1:-1]  # the last is of the picture
    assert ids(read(f"file://{tmp_path}/rivers.md")) == ["rivers.md"]


def test_a_beir_folder_is_its_corpus(bucket: Any) -> None:
    bucket.pipe("/bucket/data/corpus.jsonl", LINES)
    bucket.pipe("/bucket/data/notes.txt", b"Not read.")
    assert ids(read("memory://bucket/data")) == ["d0", "d1", "d2"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://bucket/none.jsonl", "there is no such file or folder"),
        ("memory://bucket/x.png", "is not of a known kind"),
        ("nosuch://bucket/x.jsonl", "Protocol not known: nosuch"),
    ],
)
def test_what_is_no_corpus_is_refused(bucket: Any, url: str, reason: str) -> None:
    bucket.pipe("/bucket/x.png", b"png")
    with pytest.raises(CorpusError, match=f"{Path(url).name}: .*{reason}"):
        read_corpus(open_remote(url))


def test_no_message_shows_a_password() -> None:
    with pytest.raises(CorpusError) as raised:
        open_remote("nosuch://me:secret@host/x.jsonl")
    assert "nosuch://me@host/x.jsonl" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_command_reads_a_url(longmatch: Run, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_bytes(LINES)
    url = f"file://{tmp_path}/corpus.jsonl"
    answer = longmatch("index", url)
    assert answer.status == 0
    assert "3 documents; 3 encoded" in answer.err
    for option, reason in (
        (("--follow-links",), "--follow-links: is for a folder of this machine"),
        (("--query", "SELECT 1"), "is not an address of a known kind (sqlite://, postgresql://)"),
    ):
        answer = longmatch("index", url, *option)
        assert answer.status == 2
        assert reason in answer.err

import gzip
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from index.corpus.json_lines import Line, parse_document, read_lines
from index.corpus.reader import read_corpus
from index.document import Document, SkippedInput
from index.errors import CorpusError, DocumentError
from tests.kit.corpora import documents, ids, json_lines, refusals, write


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".TXT.GZ"])
def test_lines_with_their_numbers(tmp_path: Path, suffix: str) -> None:
    content = "\ufeffone\r\n\n three \u2028 still\rthree\nfour".encode()
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.lower().endswith("gz") else content)
    expected = [Line(1, "one"), Line(2, ""), Line(3, " three \u2028 still\rthree"), Line(4, "four")]
    assert list(read_lines(path)) == expected


MAX_LINE_BYTES = 2**16  # here; many megabytes take seconds


def test_a_line_at_the_limit_is_read_and_one_over_it_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.corpus.json_lines.MAX_LINE_BYTES", MAX_LINE_BYTES)
    path = tmp_path / "x"
    with path.open("wb") as stream:
        for excess in (0, 1, MAX_LINE_BYTES):
            stream.write(b"x" * (MAX_LINE_BYTES + excess) + b"\n")
        stream.write(b"last")
    found = list(read_lines(path))
    assert len(found[0].text) == MAX_LINE_BYTES
    reason = f"is longer than {MAX_LINE_BYTES} bytes"
    assert found[1:] == [Line(2, "", reason), Line(3, "", reason), Line(4, "last")]


def test_trailing_bytes_after_gzip_are_named_after_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"trailing")
    *lines, last = read_lines(path)
    assert lines == [Line(1, "one"), Line(2, "two")]
    assert last.number == 3
    assert last.fault


def test_a_missing_file_is_one_bad_line(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "x")) == [
        Line(1, "", "cannot be read: No such file or directory")
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"year": 1, "tags": ["x"]}, Document("a", "T", metadata={"year": 1, "tags": ["x"]})),
        (
            {"url": "outer", "metadata": {"url": "inner", "n": 1}},
            Document("a", "T", metadata={"url": "inner", "n": 1}),
        ),
        ({"_id": "old", "title": "Two"}, Document("a", "T", "Two", metadata={"_id": "old"})),
        ({"title": None, "metadata": None}, Document("a", "T")),
    ],
)
def test_what_is_no_field_is_metadata(record: dict[str, Any], expected: Document) -> None:
    assert parse_document(Line(1, json.dumps({**record, "id": "a", "text": "T"}))) == expected


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "T"}, "id: is missing"),
        ({"id": None, "text": "T"}, "id: is null, not text or an integer"),
        ({"id": True, "text": "T"}, "id: is true or false, not text or an integer"),
        ({"id": 1.0, "text": "T"}, "id: is a number, not text or an integer"),
        ({"_id": [], "text": "T"}, "_id: is a list, not text or an integer"),
        ({"id": "a"}, "text: is missing"),
        ({"id": "a", "text": None}, "text: is null, not text"),
        ({"id": "a", "text": ["T"]}, "text: is a list, not text"),
        ({"id": "a", "text": " \t\n"}, "text: is empty"),
        ({"id": "a", "text": "T", "title": 3}, "title: is a number, not text"),
        ({"id": "a", "text": "T", "metadata": "m"}, "metadata: is text, not an object"),
    ],
)
def test_a_field_that_is_wrong_is_named(record: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(Line(1, json.dumps(record)))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("id,text", "is not JSON: Expecting value at character 0"),
        ('{"id": "a"} {"id": "b"}', "is not JSON: Extra data at character 12"),
        ('{"id": NaN, "text": "T"}', "is not JSON: NaN is not a JSON number"),
        ('{"id": "a", "text": "T", "x": -Infinity}', "is not JSON: -Infinity is not a JSON number"),
        ('["a", "T"]', "is not a JSON object but a list"),
        ('{"text": "T", "id": ' + "9" * 5_000 + "}", "is not JSON: Exceeds the limit"),
        ("[" * 100_000 + "]" * 100_000, "is nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_is_refused(line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=f"^{re.escape(message)}"):
        parse_document(Line(1, line))


JSON_PIECES = [
    *(bytes([byte]) for byte in b'{}[]":,\n\xff\0'), b"1e999", b"NaN", b"\\ud800", b'"id"',
    b'"text"', b"null",
]  # fmt: skip


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".JSONL"])
def test_json_lines_by_suffix(tmp_path: Path, suffix: str) -> None:
    content = json_lines([{"id": 7, "text": "Seven."}, {"_id": "8", "text": "Eight."}]).encode()
    path = tmp_path / f"x{suffix}"
    write(path, gzip.compress(content) if suffix.endswith("gz") else content)
    assert ids(path) == ["7", "8"]


def test_a_bad_line_is_refused_by_number_and_the_rest_goes_on(tmp_path: Path) -> None:
    lines = [
        *(b'\xef\xbb\xbf{"id": "a", "text": "A."}\r', b"", b"  \t", b'{"id": "b", "text": '),
        *(b'{"id": "c", "text": "\xff"}', b'{"id": "d"}', b'["id", "text"]'),
        b'{"id": "e", "text": "E."}',
    ]
    path = write(tmp_path / "x.jsonl", b"\n".join(lines))
    assert [document.id for document in documents(path)] == ["a", "e"]
    found = refusals(path)
    assert sorted(found) == ["x.jsonl:4", "x.jsonl:5", "x.jsonl:6", "x.jsonl:7"]
    assert found["x.jsonl:5"] == "is not UTF-8 at byte 21 of the line"
    assert found["x.jsonl:6"] == "text: is missing"


def test_an_id_that_comes_again_is_refused_with_the_first_line(tmp_path: Path) -> None:
    records = [{"id": 1, "text": ""}, {"id": 1, "text": "A."}, {"id": "1", "text": "B."}]
    path = write(tmp_path / "x.jsonl", json_lines(records))
    assert [document.text for document in documents(path)] == ["A."]
    found = refusals(path)
    assert found["x.jsonl:3"] == "the id '1' already occurs on line 2"
    assert list(found) == ["x.jsonl:1", "x.jsonl:3"]


def test_a_truncated_gzip_file_names_the_place(tmp_path: Path) -> None:
    content = json_lines({"id": i, "text": os.urandom(500).hex()} for i in range(200)).encode()
    whole = gzip.compress(content)
    path = write(tmp_path / "x.jsonl.gz", whole[: len(whole) // 2])
    found = documents(path)
    assert 10 < len(found) < 200
    assert [document.id for document in found] == [str(i) for i in range(len(found))]
    assert refusals(path) == {f"x.jsonl.gz:{len(found) + 1}": "the file is cut off here"}


def test_a_damaged_gzip_file_names_the_place(tmp_path: Path) -> None:
    noise = random.Random(1)
    texts = (noise.randbytes(500).hex() for _ in range(2000))
    content = json_lines({"id": i, "text": text} for i, text in enumerate(texts)).encode()
    damaged = bytearray(gzip.compress(content, mtime=0))
    middle = len(damaged) // 2
    damaged[middle : middle + 64] = b"\xff" * 64
    path = write(tmp_path / "x.jsonl.gz", bytes(damaged))
    found = list(read_corpus(path))
    assert isinstance(found[0], Document)
    last = found[-1]
    assert isinstance(last, SkippedInput)
    assert last.where == f"x.jsonl.gz:{len(found)}"
    assert last.reason.startswith("the file is damaged here")


@pytest.mark.parametrize("content", [b"not gzip at all", b"\x1f\x8b"])
def test_a_file_that_is_no_gzip_is_refused(tmp_path: Path, content: bytes) -> None:
    assert list(refusals(write(tmp_path / "x.jsonl.gz", content))) == ["x.jsonl.gz:1"]


@given(st.binary() | st.lists(st.sampled_from(JSON_PIECES)).map(b"".join))
@example(b'{"id": "a", "text": "\\ud800"}')
@example(b'{"id": "\\ud800", "text": "a"}')
@example(b'{"id": 1, "text": "a", "x": 1e999}')
@example(b"[" * 200_000)
@example(b'{"a":' * 200_000)
@example(b'{"id": ' + b"1" * 5000 + b', "text": "a"}')
def test_no_bytes_make_json_lines_raise(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "x.jsonl", content)
    found = list(read_corpus(path))
    assert len(found) <= content.count(b"\n") + 1
    assert list(read_corpus(path)) == found


@given(st.binary())
def test_no_bytes_make_a_gzip_corpus_raise(tmp_path: Path, content: bytes) -> None:
    plain = write(tmp_path / "plain.jsonl", content)
    packed = write(tmp_path / "packed.jsonl.gz", gzip.compress(content))
    broken = write(tmp_path / "broken.jsonl.gz", b"\x1f\x8b\x08\x00" + content)
    assert len(list(read_corpus(packed))) == len(list(read_corpus(plain)))
    assert all(isinstance(item, SkippedInput) for item in read_corpus(broken))

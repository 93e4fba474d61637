"""Corpora of JSON Lines, plain and gzip."""

import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from index.corpus.json_lines import MAX_LINE_BYTES
from index.corpus.reader import read_corpus
from index.document import Document, SkippedInput
from tests.tools.corpora import documents, ids, json_lines, refusals, write

JSON_PIECES = [
    *(bytes([byte]) for byte in b'{}[]":,\n\xff\0'),
    b"1e999",
    b"NaN",
    b"\\ud800",
    b'"id"',
    b'"text"',
    b"null",
]


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".JSONL"])
def test_json_lines_by_suffix(tmp_path: Path, suffix: str) -> None:
    content = json_lines([{"id": 7, "text": "Seven."}, {"_id": "8", "text": "Eight."}]).encode()
    path = tmp_path / f"x{suffix}"
    write(path, gzip.compress(content) if suffix.endswith("gz") else content)
    assert ids(path) == ["7", "8"]


def test_a_bad_line_is_refused_by_number_and_the_rest_goes_on(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"id": "a", "text": "A."}\r',
        b"",
        b"  \t",
        b'{"id": "b", "text": ',
        b'{"id": "c", "text": "\xff"}',
        b'{"id": "d"}',
        b'["id", "text"]',
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


def test_a_line_over_the_limit_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b'{"id": "a", "text": "A."}\n')
        stream.write(b" " * (MAX_LINE_BYTES + 1) + b"\n")
        stream.write(b'{"id": "b", "text": "B."}\n')
    assert [document.id for document in documents(path)] == ["a", "b"]
    assert refusals(path) == {"x.jsonl.gz:2": f"is longer than {MAX_LINE_BYTES} bytes"}


def test_a_cut_off_gzip_file_gives_what_it_has_and_names_the_place(tmp_path: Path) -> None:
    content = json_lines({"id": i, "text": os.urandom(500).hex()} for i in range(200)).encode()
    whole = gzip.compress(content)
    path = write(tmp_path / "x.jsonl.gz", whole[: len(whole) // 2])
    found = documents(path)
    assert 10 < len(found) < 200
    assert [document.id for document in found] == [str(i) for i in range(len(found))]
    assert refusals(path) == {f"x.jsonl.gz:{len(found) + 1}": "the file is cut off here"}


def test_a_damaged_gzip_file_gives_what_it_has_and_names_the_place(tmp_path: Path) -> None:
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
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_bytes_make_json_lines_raise(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "x.jsonl", content)
    found = list(read_corpus(path))
    assert len(found) <= content.count(b"\n") + 1
    assert list(read_corpus(path)) == found


@given(st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_bytes_make_a_gzip_corpus_raise(tmp_path: Path, content: bytes) -> None:
    plain = write(tmp_path / "plain.jsonl", content)
    packed = write(tmp_path / "packed.jsonl.gz", gzip.compress(content))
    broken = write(tmp_path / "broken.jsonl.gz", b"\x1f\x8b\x08\x00" + content)
    assert len(list(read_corpus(packed))) == len(list(read_corpus(plain)))
    assert all(isinstance(item, SkippedInput) for item in read_corpus(broken))

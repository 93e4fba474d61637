"""Uploads: written whole or not at all, and read in the same batches from any position."""

import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import errors
from service.uploads import files as uploads
from service.uploads.store import Upload

LIMIT = 10_000
content_parts = [b"{}", b"a", b" ", b"\t", b"\r", b"\v\f", b"\n", b"\xff"]
contents = st.lists(st.sampled_from(content_parts)).map(b"".join)
cuts = st.lists(st.integers(1, 7))


def pieces(content: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield content[:size]
        content = content[size:]
    yield content


def receive(path: Path, chunks: Iterator[bytes], *, compressed: bool = False) -> Upload:
    file = uploads.UploadFile(path, max_bytes=LIMIT, gzip=compressed)
    try:
        for chunk in chunks:
            file.write(chunk)
        return file.finish()
    except BaseException:
        file.abandon()
        raise


@given(contents, cuts, st.booleans())
def test_what_is_received_is_on_the_disk_and_counted(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, sizes: list[int], compressed: bool
) -> None:
    path = tmp_path_factory.mktemp("uploads") / "id.ndjson"
    lines = sum(bool(line.strip()) for line in content.split(b"\n"))
    sent = gzip.compress(content) if compressed else content
    try:
        upload = receive(path, pieces(sent, sizes), compressed=compressed)
    except errors.InvalidInputError:
        assert lines == 0
        assert list(path.parent.iterdir()) == []
        return
    assert path.read_bytes() == content
    assert (upload.id, upload.size, upload.accepted) == ("id", len(content), lines)
    assert uploads.verify_upload(path, upload.digest)
    assert list(path.parent.iterdir()) == [path]


@given(st.binary(max_size=200), cuts, st.integers(1, 80))
def test_bytes_that_are_not_gzip_or_cut_off_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, sizes: list[int], missing: int
) -> None:
    path = tmp_path_factory.mktemp("uploads") / "id.ndjson"
    with pytest.raises((errors.MalformedBodyError, errors.InvalidInputError)):
        receive(path, pieces(content, sizes), compressed=True)
    whole = gzip.compress(os.urandom(100) + b"\n")
    with pytest.raises(errors.MalformedBodyError, match="truncated"):
        receive(path, iter([whole[:-missing]]), compressed=True)
    assert list(path.parent.iterdir()) == []


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Check how many bytes Python allocates meanwhile."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_a_bomb_costs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_RATIO", 1e9)
    bomb = gzip.compress(b"{}\n" * 12_000_000)
    assert len(bomb) < 100_000
    file = uploads.UploadFile(tmp_path / "id.ndjson", max_bytes=30_000_000, gzip=True)
    with peak_below(10_000_000), pytest.raises(errors.BodyTooLargeError):
        file.write(bomb)
    file.abandon()
    assert list(tmp_path.iterdir()) == []


def test_what_belongs_to_no_job_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    uploads.remove_others(folder, [])
    for name in ("a.ndjson", "b.ndjson"):
        (folder / name).write_bytes(b"{}")
    uploads.remove_others(folder, ["b"])
    assert [path.name for path in folder.iterdir()] == ["b.ndjson"]


LIMITS = {"documents": 3, "line_bytes": 60, "text_characters": 20}
GOOD = [json.dumps({"id": name, "text": "t" + name}).encode() for name in "abcde"]
lines = st.lists(
    st.sampled_from([*GOOD, b"", b" ", b"{", b"\xff", b'{"id": "x", "text": ""}', b"z" * 61])
)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_just_the_limit_is_read(end: bytes) -> None:
    line = b'{"id": "a", "text": "b"}'.ljust(LIMITS["line_bytes"])
    for content, counts in ((line, (1, 0)), (line + b" ", (0, 1))):
        batch = uploads.read_batch(io.BytesIO(content + end), 0, 0, **LIMITS)
        assert batch is not None
        assert (len(batch.documents), len(batch.errors)) == counts


def read_all(content: bytes, position: int = 0, line: int = 0) -> list[uploads.Batch]:
    batches: list[uploads.Batch] = []
    while batch := uploads.read_batch(io.BytesIO(content), position, line, **LIMITS):
        batches.append(batch)
        position, line = batch.position, batch.line
    return batches


@given(lines, st.booleans())
def test_each_line_is_read_once_as_document_error_or_blank(
    given_lines: list[bytes], ended: bool
) -> None:
    content = b"\n".join(given_lines) + (b"\n" if ended else b"")
    batches = read_all(content)
    seen = [number for batch in batches for number, _ in batch.documents]
    seen += [error.line for batch in batches for error in batch.errors]
    filled = [n for n, line in enumerate(given_lines, 1) if line.strip()]
    assert sorted(seen) == filled
    documents = [document.id for batch in batches for _, document in batch.documents]
    assert documents == [json.loads(line)["id"] for line in given_lines if line in GOOD]
    for batch in batches:
        ids = [document.id for _, document in batch.documents]
        assert len(ids) == len(set(ids)) <= LIMITS["documents"]
    if batches:
        assert batches[-1].position == len(content)
    for number, batch in enumerate(batches, 1):  # reading goes on from the end of any batch
        assert read_all(content, batch.position, batch.line) == batches[number:]


def test_a_batch_is_bounded_unless_one_document_is_longer() -> None:
    limits = {"documents": 64, "line_bytes": 10**7, "text_characters": 10**7}
    sizes = [uploads.MAX_CHARACTERS // 2] * 3 + [uploads.MAX_CHARACTERS * 3, 5]
    content = b"".join(
        json.dumps({"id": str(number), "text": "a" * size}).encode() + b"\n"
        for number, size in enumerate(sizes)
    )
    position, line, batches = 0, 0, []
    while batch := uploads.read_batch(io.BytesIO(content), position, line, **limits):
        batches.append([number for number, _ in batch.documents])
        position, line = batch.position, batch.line
    assert batches == [[1, 2], [3], [4], [5]]


def test_a_line_of_fifty_megabytes_is_passed_without_being_held() -> None:
    content = b'{"id": "a", "text": "' + b"a" * 50_000_000 + b'"}\n' + GOOD[1]
    stream = io.BytesIO(content)
    with peak_below(5_000_000):
        batch = uploads.read_batch(stream, 0, 0, **LIMITS)
    assert batch is not None
    assert [error.line for error in batch.errors] == [1]
    assert [document.id for _, document in batch.documents] == ["b"]


def test_lines_without_a_document_are_read_in_bounded_batches() -> None:
    batches = read_all(b"\n" * 45_000 + GOOD[0])
    assert [batch.line for batch in batches] == [20_000, 40_000, 45_001]
    batches = read_all(b"{}\n" * 45_000 + GOOD[0])
    assert [batch.failed for batch in batches] == [20_000, 20_000, 5_000]
    assert [len(batch.errors) for batch in batches] == [100, 100, 100]
    assert [len(batch.documents) for batch in batches] == [0, 0, 1]


def test_a_high_compression_ratio_is_refused_unwritten(tmp_path: Path) -> None:
    path = tmp_path / "id.ndjson"
    file = uploads.UploadFile(path, max_bytes=2**30, gzip=True)
    with pytest.raises(errors.CompressionRatioError, match="more than 100 times its size"):
        file.write(gzip.compress(b"{}\n" * 5_000_000))
    assert file.size <= 2 * 2**20
    file.abandon()
    assert list(tmp_path.iterdir()) == []
    small = uploads.UploadFile(path, max_bytes=2**30, gzip=True)  # has any ratio
    small.write(gzip.compress(b"{}\n" * 1000))
    assert small.finish().accepted == 1000


def test_gzip_of_very_many_tiny_members_is_refused(tmp_path: Path) -> None:
    tiny = gzip.compress(b"\n", mtime=0)
    file = uploads.UploadFile(tmp_path / "id.ndjson", max_bytes=2**30, gzip=True)
    with pytest.raises(errors.MalformedBodyError, match="more than 1024 members"):
        file.write(tiny * 200_000)
    assert file.size < 1100  # bytes, one of each member that was read before
    file.abandon()

    blocks = gzip.compress(os.urandom(2_000) + b"\n") * 3_000  # as `bgzip` writes, and smaller
    file = uploads.UploadFile(tmp_path / "id.ndjson", max_bytes=2**30, gzip=True)
    for start in range(0, len(blocks), 2**20):
        file.write(blocks[start : start + 2**20])
    assert file.finish().size == 3_000 * 2_001

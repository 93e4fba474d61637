"""Uploads on their way to the disk, however they are cut into chunks."""

import gzip
import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import StoreError
from service.errors import BodyTooLargeError, InvalidInputError, MalformedUploadError
from service.jobs.job import Upload
from service.jobs.uploads import UploadFile, remove_others, verify_upload

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
    file = UploadFile(path, max_bytes=LIMIT, gzip=compressed)
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
    except InvalidInputError:
        assert lines == 0
        assert list(path.parent.iterdir()) == []
        return
    assert path.read_bytes() == content
    assert upload == Upload("id", len(content), lines, hashlib.sha256(content).digest())
    assert verify_upload(path, upload.digest)
    assert list(path.parent.iterdir()) == [path]


@given(st.binary(max_size=200), cuts)
def test_bytes_that_are_not_gzip_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("uploads") / "id.ndjson"
    with pytest.raises((MalformedUploadError, InvalidInputError)):
        receive(path, pieces(content, sizes), compressed=True)
    assert list(path.parent.iterdir()) == []


@given(st.integers(1, 80))
def test_gzip_that_is_cut_off_is_refused(
    tmp_path_factory: pytest.TempPathFactory, missing: int
) -> None:
    path = tmp_path_factory.mktemp("uploads") / "id.ndjson"
    whole = gzip.compress(os.urandom(100) + b"\n")
    with pytest.raises(MalformedUploadError, match="cut off"):
        receive(path, iter([whole[:-missing]]), compressed=True)


def test_a_bomb_costs_no_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(b"{}\n" * 12_000_000)
    assert len(bomb) < 100_000
    file = UploadFile(tmp_path / "id.ndjson", max_bytes=30_000_000, gzip=True)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLargeError):
            file.write(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        file.abandon()
    assert peak < 10_000_000
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "id.partial").symlink_to("/dev/full")
    file = UploadFile(tmp_path / "id.ndjson", max_bytes=LIMIT, gzip=False)
    file.write(b"{}\n")
    with pytest.raises(StoreError, match="No space left"):
        file.finish()
    file.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_changed_or_gone_is_known(tmp_path: Path) -> None:
    path = tmp_path / "id.ndjson"
    upload = receive(path, iter([b'{"id": "a"}\n']))
    for place in range(upload.size):
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        assert not verify_upload(path, upload.digest)
        content[place] ^= 1
        path.write_bytes(content)
    assert verify_upload(path, upload.digest)
    path.unlink()
    assert not verify_upload(path, upload.digest)


def test_what_belongs_to_no_job_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    remove_others(folder, [])
    for name in ("a.ndjson", "b.ndjson", "c.partial"):
        (folder / name).write_bytes(b"{}")
    remove_others(folder, ["b"])
    assert [path.name for path in folder.iterdir()] == ["b.ndjson"]

from pathlib import Path

import pytest

from index.directory.file_digest import DIGEST_FILE, remove_digest, verify_digest, write_digest
from index.errors import StoreError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite3"
    path.write_bytes(bytes(range(256)) * 200_000)  # more than one chunk
    return path


@pytest.mark.parametrize("place", [0, 2**24 - 1, 2**24, 256 * 200_000 - 1])
def test_a_changed_byte_breaks_it(store: Path, place: int) -> None:
    write_digest(store)
    verify_digest(store)
    with store.open("r+b") as file:
        file.seek(place)
        file.write(b"\xaa" if place % 256 != 0xAA else b"\xab")
    with pytest.raises(StoreError, match=r"store\.sqlite3: has changed since it was closed"):
        verify_digest(store)


@pytest.mark.parametrize("size", [0, 100, 256 * 200_000 - 1])
def test_a_shorter_file_breaks_it(store: Path, size: int) -> None:
    write_digest(store)
    with store.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(StoreError, match="has changed"):
        verify_digest(store)


def test_without_one_every_store_passes(store: Path) -> None:
    verify_digest(store)
    write_digest(store)
    remove_digest(store)
    remove_digest(store)
    store.write_bytes(b"another")
    verify_digest(store)


@pytest.mark.parametrize("content", ["", "a", "a b c", f"{'0' * 64} 00000000", "\xff\xfe 1"])
def test_a_damaged_digest_accuses_no_store(
    store: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.with_name(DIGEST_FILE).write_text(content, encoding="latin-1")
    verify_digest(store)
    assert "is damaged and is ignored" in caplog.text


def test_a_store_that_a_reader_keeps_open_gets_none(store: Path) -> None:
    store.with_name("store.sqlite3-wal").write_bytes(b"changes")
    write_digest(store)
    assert not store.with_name(DIGEST_FILE).exists()


def test_a_lost_store_is_told_by_its_opening(store: Path) -> None:
    write_digest(store)
    store.unlink()
    verify_digest(store)

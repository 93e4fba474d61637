import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import index.directory.file_digest as file_digest
from index.directory.data_directory import DataDirectory, open_data_directory
from index.directory.file_digest import DIGEST_FILE, remove_digest, verify_digest, write_digest
from index.errors import StoreError
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry


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


def test_without_one_every_store_passes(store: Path) -> None:
    verify_digest(store)
    write_digest(store)
    remove_digest(store)
    remove_digest(store)
    store.write_bytes(b"another")
    verify_digest(store)


@pytest.mark.parametrize("content", ["", "a", "a b c", f"{'0' * 64} 00000000", "\xff\xfe 1"])
def test_a_damaged_digest_is_ignored(
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


MANY = 60
TEXT = "Ants live in colonies of the forest. " * 500


def open_one(path: Path, **options: bool) -> DataDirectory:
    return open_data_directory(path, fingerprint=FINGERPRINT, dimension=DIMENSION, **options)


@pytest.fixture
def data(tmp_path: Path, entry: MakeEntry) -> Path:
    path = tmp_path / "data"
    with closing(open_one(path)) as directory:
        directory.index.apply(directory.store.put([entry(f"d{n}", f"text {n}") for n in range(20)]))
    return path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every comparison until the event is set."""
    go, digest = threading.Event(), file_digest._digest

    def wait(store: Path) -> str:
        assert go.wait(120)
        return digest(store)

    monkeypatch.setattr(file_digest, "_digest", wait)
    yield go
    go.set()


def test_it_is_used_during_the_check(data: Path, entry: MakeEntry, held: threading.Event) -> None:
    store, digest = data / "store.sqlite3", data / file_digest.DIGEST_FILE
    before = store.read_bytes()
    directory = open_one(data, in_background=True)
    for number in range(MANY):  # more than SQLite keeps in the log by itself
        change = directory.store.put([entry(f"new{number}", f"{TEXT} {number}")])
        directory.index.apply(change)
    assert len(directory.index) == 20 + MANY
    assert directory.damage is None
    # A kill now would leave these: a file and its digest, and the log of all changes.
    assert digest.exists()
    assert store.read_bytes() == before
    log = store.with_name("store.sqlite3-wal").stat().st_size
    assert log > 1_000 * 4_096
    held.set()
    directory.close()
    assert store.read_bytes() != before
    assert digest.exists()  # a new one
    with closing(open_one(data)) as again:
        assert len(again.store) == 20 + MANY


def test_the_log_shrinks_once_the_store_was_found_sound(data: Path, entry: MakeEntry) -> None:
    with closing(open_one(data, in_background=True)) as directory:
        assert directory._check is not None
        assert directory._check.wait()
        assert not (data / file_digest.DIGEST_FILE).exists()
        before = (data / "store.sqlite3").stat().st_size
        for number in range(MANY):
            directory.store.put([entry(f"new{number}", f"{TEXT} {number}")])
        assert (data / "store.sqlite3").stat().st_size > before


def test_a_kill_during_the_check(
    data: Path, entry: MakeEntry, held: threading.Event, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    directory = open_one(data, in_background=True)
    directory.store.put([entry("new", "a new text")])
    killed.mkdir()
    for path in data.iterdir():  # as the files lie there
        if path.is_file() and path.name != "lock":
            (killed / path.name).write_bytes(path.read_bytes())
    held.set()
    directory.close()
    for later in (True, False):
        with closing(open_one(killed, in_background=later)) as again:
            assert "new" in again.store.find(["new"])
            assert again.damage is None


def test_damage_is_found_and_stays_known(data: Path, entry: MakeEntry) -> None:
    store = data / "store.sqlite3"
    store.write_bytes(store.read_bytes().replace(b"text 7", b"text 8", 1))
    with closing(open_one(data, in_background=True)) as directory:
        assert directory._check is not None
        assert not directory._check.wait()
        assert "has changed since it was closed" in str(directory.damage)
        directory.store.put([entry("new", "a new text")])
    with pytest.raises(StoreError, match="has changed since it was closed"):
        open_one(data)


def test_without_a_digest_there_is_nothing_to_compare(data: Path) -> None:
    (data / file_digest.DIGEST_FILE).unlink()
    with closing(open_one(data, in_background=True)) as directory:
        assert directory.damage is None
        assert directory._check is None
    assert (data / file_digest.DIGEST_FILE).exists()

import sqlite3
import threading
from pathlib import Path

import pytest

from index.errors import DocumentError, FingerprintMismatchError, StoreError
from index.store.document_store import DocumentStore
from index.store.schema import STORE, read_space
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry, OpenStore


@pytest.fixture
def closed_store(open_store: OpenStore, entry: MakeEntry, tmp_path: Path) -> Path:
    store = open_store()
    store.put([entry(f"{number}", f"text {number} " * 500) for number in range(50)])
    store.close()
    return tmp_path / "store.sqlite3"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("content", [b"this is no database\n" * 500, b"x", b""])
def test_a_file_that_is_no_store_is_refused_and_left_alone(
    open_store: OpenStore, tmp_path: Path, content: bytes, read_only: bool
) -> None:
    """Also one that became empty, and the database of another program."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"notes\.txt: "):
        open_store(path, read_only=read_only)
    assert path.read_bytes() == content
    sql(path.with_suffix(".db"), "CREATE TABLE bookmarks (url TEXT)")
    before = path.with_suffix(".db").read_bytes()
    with pytest.raises(StoreError, match=r"notes\.db: .*not one of Longmatch's documents"):
        open_store(path.with_suffix(".db"), read_only=read_only)
    assert path.with_suffix(".db").read_bytes() == before


def test_closing_while_a_read_goes_on_lets_it_end(open_store: OpenStore, entry: MakeEntry) -> None:
    store = open_store()
    store.put([entry("a")])
    with store.connections.reading() as connection:
        store.close()
        assert connection.execute("SELECT count(*) FROM documents").fetchone() == (1,)
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("version", [0, STORE.version + 1])
def test_another_format_is_refused(open_store: OpenStore, closed_store: Path, version: int) -> None:
    sql(closed_store, f"PRAGMA user_version = {version}")
    before = closed_store.read_bytes()
    complaint = f"has format {version}; this version of Longmatch reads format {STORE.version}$"
    for read_only in (True, False):
        with pytest.raises(StoreError, match=complaint):
            open_store(read_only=read_only)
    with pytest.raises(StoreError, match=complaint):
        read_space(closed_store)
    assert closed_store.read_bytes() == before


def test_another_checkpoint_is_refused(open_store: OpenStore, closed_store: Path) -> None:
    with pytest.raises(FingerprintMismatchError) as caught:
        open_store(fingerprint="b" * 64)
    assert (caught.value.found, caught.value.expected) == ("a" * 64, "b" * 64)
    with pytest.raises(StoreError, match="dimension 16, not 32"):
        open_store(dimension=32)


def test_reading_only_makes_nothing(open_store: OpenStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing\.sqlite3: unable to open"):
        open_store(tmp_path / "missing.sqlite3", read_only=True)
    with pytest.raises(StoreError, match="cannot be created"):
        open_store(tmp_path / "no" / "such" / "missing.sqlite3")
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_its_store_is_refused(open_store: OpenStore, tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3-wal").write_bytes(b"something")
    with pytest.raises(StoreError, match=r"missing, but its log store\.sqlite3-wal is there"):
        open_store()


def test_a_killed_creation_is_begun_again(open_store: OpenStore, tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3.new").write_bytes(b"half")
    assert open_store().sequence == 0


def test_a_name_with_characters_of_a_uri_is_a_name(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "50% of ü #1?mode=memory.sqlite3"
    open_store(path)
    assert path.stat().st_size > 0


def test_a_reader_does_not_write(
    open_store: OpenStore, closed_store: Path, entry: MakeEntry
) -> None:
    store = open_store(read_only=True)
    assert len(store) == 50
    with pytest.raises(StoreError, match="opened for reading only"):
        store.put([entry("new")])
    with pytest.raises(StoreError, match="opened for reading only"):
        store.delete(["0"])


@pytest.mark.parametrize("damage", [b"\x00", b"\xff", b"garbage"])
def test_damaged_pages_name_the_file(
    open_store: OpenStore, closed_store: Path, damage: bytes
) -> None:
    size = closed_store.stat().st_size
    with closed_store.open("r+b") as file:
        file.seek(4096)  # the first page says what the file is; all others are overwritten
        file.write((damage * size)[: size - 4096])
    with pytest.raises(StoreError, match=r"store\.sqlite3: "):
        everything(open_store())


def everything(store: DocumentStore) -> list[object]:
    ids = store.log.added_after(0)[1].tolist()
    summaries = store.get(ids)
    return [summaries, store.find([s.id for s in summaries.values()]), store.vectors(ids)]


def test_a_failed_put_leaves_nothing(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("old", "old text")])
    spoilt = entry("spoilt", "more text", year=1)
    spoilt.document.metadata["year"] = object()  # type: ignore[index]
    with pytest.raises(DocumentError):
        store.put([entry("old", "new text"), entry("new", "text"), spoilt])
    assert store.find(["old", "new", "spoilt"]).keys() == {"old"}
    assert store.find(["old"])["old"].document.text == "old text"
    assert store.log.added_after(0)[1].size == 1
    assert store.put([entry("new", "text")]).sequence == 2


def test_threads_read_and_write_together(store: DocumentStore, entry: MakeEntry) -> None:
    sequences: list[int] = []
    torn: list[object] = []
    writing = threading.Event()
    writing.set()

    def write(worker: int) -> None:
        for number in range(20):
            change = store.put([entry(f"{worker}-{number}-{twin}", f"{twin}") for twin in "ab"])
            sequences.append(change.sequence)

    def read() -> None:
        while writing.is_set():
            ids = store.log.added_after(0)[1]
            pairs = {summary.id[:-1] for summary in store.get(ids.tolist()).values()}
            if len(ids) != 2 * len(pairs) or len(store.vectors(ids)[0]) != len(ids):
                torn.append(ids)

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in readers:
        thread.join()
    assert sorted(sequences) == list(range(1, 81))
    assert (len(store), torn) == (160, [])


def test_deleted_space_is_given_back(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    store = open_store()
    names = [f"d{number}" for number in range(15)]
    store.put([entry(name, f"{name} " + "word " * 20_000) for name in names])
    store.delete(names[5:])
    assert sorted(store.find(names)) == ["d0", "d1", "d2", "d3", "d4"]
    store.close()  # moves the log into the file
    assert (tmp_path / "store.sqlite3").stat().st_size < 1_000_000
    assert sql(store.path, "PRAGMA freelist_count") == [(0,)]
    assert sql(store.path, "PRAGMA integrity_check") == [("ok",)]

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import index.live_index
from encoder.blocks import Receipt
from index.document import Document
from index.errors import StoreError
from index.faiss_index import ONE_LIST_BELOW, choose_nlist
from index.live_index import LiveIndex, needs_training, open_live_index
from index.snapshot import read_current_snapshot, verify_current_snapshot
from index.sqlite_store import Change, Entry, SQLiteDocumentStore
from index.vector_index import NO_VECTOR, Float32

MakeEntry = Callable[..., Entry]
OpenStore = Callable[..., SQLiteDocumentStore]
MakeVectors = Callable[..., Float32]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def assert_equals_store(live: LiveIndex, store: SQLiteDocumentStore) -> None:
    """The index holds exactly the store's vectors, each under its id."""
    ids, vectors = store.vectors(store.changes_since(0).added)
    assert (len(live), live.sequence) == (len(store), store.sequence)
    if len(ids):
        found = live.search(vectors, 1, nprobe=live.nlist)
        np.testing.assert_array_equal(found.ids[:, 0], ids)
        np.testing.assert_allclose(found.scores[:, 0], 1.0, atol=1e-5)


def fill(store: SQLiteDocumentStore, vectors: Float32, prefix: str = "d") -> Change:
    receipt = Receipt(1, 1, 1, 0)
    return store.put(
        [
            Entry(Document(f"{prefix}{number}", f"{prefix}{number}"), vector, receipt)
            for number, vector in enumerate(vectors)
        ]
    )


@pytest.mark.parametrize(
    ("nlist", "count", "needed"),
    [
        (1, 0, False),
        (1, 4_999, False),
        (1, 5_000, True),
        (128, 5_000, False),
        (128, 4_999, True),
        (128, 19_000, False),
        (128, 20_000, True),
        (512, 5_000, True),
        (511, 5_000, False),
    ],
)
def test_an_index_is_trained_again_when_it_is_far_off(nlist: int, count: int, needed: bool) -> None:
    assert needs_training(nlist, count) is needed
    assert not needs_training(choose_nlist(count), count)


def test_a_new_store_has_an_empty_index(store: SQLiteDocumentStore, root: Path) -> None:
    live = open_live_index(store, root)
    found = live.search(np.eye(2, store.dimension, dtype=np.float32), 3)
    assert (found.ids == NO_VECTOR).all()
    assert_equals_store(live, store)


def test_changes_are_found_at_once(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry
) -> None:
    live = open_live_index(store, root)
    live.apply(store.put([entry("a", "one"), entry("b", "two")]))
    assert_equals_store(live, store)
    live.apply(store.put([entry("a", "three")]))
    assert_equals_store(live, store)
    live.apply(store.delete(["b"]))
    assert_equals_store(live, store)
    assert live.dimension == store.dimension


def test_changes_may_arrive_in_any_order_and_twice(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry
) -> None:
    live = open_live_index(store, root)
    changes = [
        store.put([entry("a", "one"), entry("b", "two")]),
        store.put([entry("a", "three")]),
        store.delete(["a", "b"]),
        store.put([entry("b", "four")]),
    ]
    for change in [changes[2], changes[0], changes[3], changes[1], changes[3], *changes]:
        live.apply(change)
        assert live.sequence >= change.sequence
    assert_equals_store(live, store)


def test_threads_change_search_rebuild_and_publish_at_the_same_time(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, vectors: MakeVectors
) -> None:
    live = open_live_index(store, root)
    stable = vectors(20, seed=1)
    stable_ids = fill(store, stable, "stable").added
    live.catch_up()
    wrong: list[object] = []
    working = threading.Event()
    working.set()

    def change(worker: int) -> None:
        for number in range(15):
            mine = entry(f"{worker}-{number % 4}", f"text {worker} {number}")
            change = store.put([mine])
            live.apply(change)
            if live.search(mine.vector[None], 1).ids[0, 0] != change.added[0]:
                wrong.append(("not found after it was applied", change))
            gone = store.delete([mine.document.id])
            live.apply(gone)
            if np.isin(live.search(mine.vector[None], 30).ids, gone.removed).any():
                wrong.append(("found after it was deleted", gone))

    def search() -> None:
        while working.is_set():
            if not np.array_equal(live.search(stable, 1).ids[:, 0], stable_ids):
                wrong.append("a stable vector was missing")

    def renew() -> None:
        while working.is_set():
            live.rebuild()
            live.publish()

    def caught(work: Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            wrong.append(error)
            raise

    others = [threading.Thread(target=caught, args=(work,)) for work in (search, search, renew)]
    changers = [threading.Thread(target=caught, args=(change, worker)) for worker in range(4)]
    for thread in others + changers:
        thread.start()
    for thread in changers:
        thread.join()
    working.clear()
    for thread in others:
        thread.join()

    assert wrong == []
    assert_equals_store(live, store)
    assert_equals_store(open_live_index(store, root), store)


def test_a_search_does_not_wait_for_a_publish_or_a_rebuild(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, vectors: MakeVectors
) -> None:
    live = open_live_index(store, root)
    live.apply(store.put([entry("a", "one")]))
    # What publish and rebuild hold, from the first byte to the last.
    with live._publishing, live._updates, live._index._lock.reading():
        searching = threading.Thread(target=live.search, args=(vectors(1, seed=1), 1), daemon=True)
        searching.start()
        searching.join(30)
        assert not searching.is_alive()


def test_opening_replays_what_the_store_did_since_the_snapshot(
    open_store: OpenStore, root: Path, entry: MakeEntry, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    live = open_live_index(store, root)
    live.apply(store.put([entry("a", "one"), entry("b", "two"), entry("c", "three")]))
    live.publish()
    store.put([entry("a", "four"), entry("d", "five")])
    store.delete(["b", "d"])
    store.close()
    caplog.clear()

    store = open_store()
    again = open_live_index(store, root)

    assert_equals_store(again, store)
    assert again.generation == live.generation == 2
    assert caplog.records == []


def test_a_store_that_fails_half_way_is_caught_up_with_later(
    open_store: OpenStore,
    root: Path,
    vectors: MakeVectors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store()
    live = open_live_index(store, root)
    monkeypatch.setattr(index.live_index, "ADD_CHUNK", 10)
    change = fill(store, vectors(35, seed=1))
    with store._connections.writing() as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(3) WHERE vector_id = 25")

    with pytest.raises(StoreError, match="a vector is damaged"):
        live.apply(change)
    assert live.sequence == 0
    with store._connections.writing() as connection:
        connection.execute("DELETE FROM documents WHERE vector_id = 25")
    live.apply(change)

    assert_equals_store(live, store)


def test_an_index_that_was_outgrown_gets_lists_and_loses_them_again(
    store: SQLiteDocumentStore, root: Path, vectors: MakeVectors
) -> None:
    live = open_live_index(store, root)
    live.apply(fill(store, vectors(ONE_LIST_BELOW, seed=1)))
    assert (live.nlist, live.outgrown) == (1, True)

    opened = open_live_index(store, root)
    assert (opened.nlist, opened.outgrown, opened.generation) == (128, False, 2)
    assert_equals_store(opened, store)
    live.rebuild()
    assert (live.nlist, live.outgrown) == (128, False)
    assert_equals_store(live, store)

    store.delete([f"d{number}" for number in range(4_000)])
    live.catch_up()
    assert_equals_store(live, store)
    assert live.outgrown
    opened = open_live_index(store, root)
    assert opened.nlist == 1
    assert_equals_store(opened, store)


@pytest.mark.parametrize("name", ["CURRENT", "0000000002/manifest.json", "0000000002/index.faiss"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_snapshot_is_built_again_from_the_store(
    store: SQLiteDocumentStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: str,
) -> None:
    live = open_live_index(store, root)
    live.apply(store.put([entry(f"{number}", f"text {number}") for number in range(30)]))
    live.publish()
    store.delete(["3"])
    path = root / name
    whole = path.read_bytes()
    middle = len(whole) // 2
    if damage == "flip":
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
    elif damage == "cut":
        path.write_bytes(whole[:middle])
    else:
        path.unlink()
    caplog.clear()
    caplog.set_level(logging.INFO)

    again = open_live_index(store, root)

    assert "building the index from the document store" in caplog.text
    assert str(root) in caplog.text
    assert_equals_store(again, store)
    assert verify_current_snapshot(root).generation == again.generation == 3
    caplog.clear()
    assert_equals_store(open_live_index(store, root), store)
    assert caplog.records == []


def test_snapshots_of_another_store_are_not_used(
    open_store: OpenStore, tmp_path: Path, root: Path, entry: MakeEntry
) -> None:
    store = open_store()
    live = open_live_index(store, root)
    live.apply(store.put([entry("a", "one")]))
    live.apply(store.put([entry("b", "two"), entry("c", "three")]))
    live.publish()

    behind = open_store(tmp_path / "behind.sqlite3")
    behind.put([entry("z", "other")])
    shutil.copytree(root, tmp_path / "behind")
    assert_equals_store(open_live_index(behind, tmp_path / "behind"), behind)

    level = open_store(tmp_path / "level.sqlite3")
    level.put([entry("y", "other")])
    level.put([entry("x", "another")])
    shutil.copytree(root, tmp_path / "level")
    assert_equals_store(open_live_index(level, tmp_path / "level"), level)

    other = open_store(tmp_path / "other.sqlite3", fingerprint="b" * 64)
    other.put([entry("a", "one")])
    other.put([entry("b", "two"), entry("c", "three")])
    shutil.copytree(root, tmp_path / "other")
    opened = open_live_index(other, tmp_path / "other")
    assert_equals_store(opened, other)
    read_current_snapshot(tmp_path / "other", fingerprint="b" * 64, dimension=other.dimension)


def test_a_snapshot_that_cannot_be_published_is_only_logged(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, caplog: pytest.LogCaptureFixture
) -> None:
    store.put([entry("a")])
    root.write_text("a file where the directory should be")
    live = open_live_index(store, root)
    assert "the index is complete in memory only" in caplog.text
    assert live.generation == 0
    assert_equals_store(live, store)


def test_reading_only_publishes_nothing_and_can_follow(
    open_store: OpenStore, root: Path, entry: MakeEntry
) -> None:
    writer = open_store()
    writer.put([entry("a", "one")])
    store = open_store(read_only=True)

    live = open_live_index(store, root, read_only=True)
    assert_equals_store(live, store)
    writer.put([entry("b", "two")])
    live.catch_up()
    assert_equals_store(live, store)
    live.rebuild()
    assert_equals_store(live, store)
    with pytest.raises(StoreError, match="opened for reading only"):
        live.publish()
    assert not root.exists()

import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import faiss
import pytest

import index.vectors.live_index
from index.errors import StoreError
from index.store.document_store import DocumentStore
from index.vectors.lists import choose_nlist, needs_training
from index.vectors.live_index import LiveIndex
from index.vectors.snapshot import load_snapshot
from tests.kit.index_fixtures import Check, Fill, MakeEntry, MakeVectors, OpenStore


@pytest.mark.parametrize(
    ("nlist", "count", "needed"),
    [
        *((1, 0, False), (1, 4_999, False), (1, 5_000, True), (128, 5_000, False)),
        *((128, 4_999, True), (128, 19_000, False), (128, 20_000, True), (512, 5_000, True)),
        (511, 5_000, False),
    ],
)
def test_an_index_is_trained_again_when_it_is_far_off(nlist: int, count: int, needed: bool) -> None:
    assert needs_training(nlist, count) is needed
    assert not needs_training(choose_nlist(count), count)


def test_changes_may_arrive_in_any_order_and_twice(
    store: DocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = LiveIndex(store, root)
    changes = [
        *(store.put([entry("a", "one"), entry("b", "two")]), store.put([entry("a", "three")])),
        *(store.delete(["a", "b"]), store.put([entry("b", "four")])),
    ]
    for change in [changes[2], changes[0], changes[3], changes[1], changes[3], *changes]:
        live.apply(change)
        assert live.sequence >= change.sequence
    assert_equals_store(live, store)


def test_a_change_during_a_rebuild_is_in_the_new_index(
    store: DocumentStore,
    root: Path,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
    assert_equals_store: Check,
) -> None:
    live = LiveIndex(store, root)
    live.apply(store.put([entry("stays", "one"), entry("goes", "two")]))
    catch_up = index.vectors.live_index._catch_up

    def catch_up_and_change(*arguments: Any) -> bool:
        reached = catch_up(*arguments)
        monkeypatch.setattr(index.vectors.live_index, "_catch_up", catch_up)  # once only
        live.apply(store.put([entry("comes", "three")]))
        live.apply(store.delete(["goes"]))
        return reached

    monkeypatch.setattr(index.vectors.live_index, "_catch_up", catch_up_and_change)
    live.rebuild()
    assert_equals_store(live, store)
    assert_equals_store(LiveIndex(store, root), store)


def test_nothing_changes_the_index_while_it_is_written(
    store: DocumentStore, root: Path, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveIndex(store, root)
    live.apply(store.put([entry("a", "one")]))
    write, late = faiss.write_index, list[threading.Thread]()

    def write_beside_a_change(*arguments: Any) -> None:
        change = store.put([entry("b", "two")])
        late.append(threading.Thread(target=live.apply, args=(change,)))
        late[0].start()
        late[0].join(0.05)  # a moment to go wrong in
        write(*arguments)

    monkeypatch.setattr(faiss, "write_index", write_beside_a_change)
    live.publish()
    late[0].join()
    published, index = load_snapshot(root)
    assert (published.sequence, len(index)) == (1, 1)
    assert (live.sequence, len(live)) == (2, 2)


def test_a_search_does_not_wait_for_a_publish_or_a_rebuild(
    store: DocumentStore, root: Path, entry: MakeEntry, vectors: MakeVectors
) -> None:
    live = LiveIndex(store, root)
    live.apply(store.put([entry("a", "one")]))
    # What publish and rebuild hold, from the first byte to the last.
    with live._publishing, live._updates, live._live.index._lock.reading():
        searching = threading.Thread(target=live.search, args=(vectors(1, seed=1), 1), daemon=True)
        searching.start()
        searching.join(120)
        assert not searching.is_alive()


def test_a_store_that_fails_half_way_is_caught_up_with_later(
    open_store: OpenStore,
    root: Path,
    vectors: MakeVectors,
    monkeypatch: pytest.MonkeyPatch,
    assert_equals_store: Check,
    fill: Fill,
) -> None:
    store = open_store()
    live = LiveIndex(store, root)
    monkeypatch.setattr(index.vectors.live_index, "ADD_CHUNK", 10)
    fill(store, vectors(35, seed=1))
    with store.connections.writing() as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(3) WHERE vector_id = 25")
    with pytest.raises(StoreError, match="the vector of vector id 25 is damaged"):
        live.catch_up()
    assert live.sequence == 0
    with store.connections.writing() as connection:
        connection.execute("DELETE FROM documents WHERE vector_id = 25")
    live.catch_up()
    assert_equals_store(live, store)


def test_opening_replays_what_the_store_did_since_the_snapshot(
    open_store: OpenStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    assert_equals_store: Check,
) -> None:
    store = open_store()
    live = LiveIndex(store, root)
    live.apply(store.put([entry("a", "one"), entry("b", "two"), entry("c", "three")]))
    live.publish()
    store.put([entry("a", "four"), entry("d", "five")])
    store.delete(["b", "d"])
    store.close()
    caplog.clear()
    store = open_store()
    again = LiveIndex(store, root)
    assert_equals_store(again, store)
    assert again.manifest.generation == live.manifest.generation == 2
    assert caplog.records == []


def test_a_damaged_snapshot_is_built_again_from_the_store(
    store: DocumentStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    assert_equals_store: Check,
) -> None:
    live = LiveIndex(store, root)
    live.apply(store.put([entry(f"{number}", f"text {number}") for number in range(30)]))
    live.publish()
    store.delete(["3"])
    root.write_bytes(root.read_bytes()[:-1])
    caplog.clear()
    caplog.set_level(logging.INFO)
    again = LiveIndex(store, root)
    assert "building the index from the document store" in caplog.text
    assert str(root) in caplog.text
    assert_equals_store(again, store)
    assert load_snapshot(root)[0] == again.manifest
    caplog.clear()
    assert_equals_store(LiveIndex(store, root), store)
    assert caplog.records == []


def test_snapshots_of_another_store_are_not_used(
    open_store: OpenStore, tmp_path: Path, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    store = open_store()
    live = LiveIndex(store, root)
    live.apply(store.put([entry("a", "one")]))
    live.apply(store.put([entry("b", "two"), entry("c", "three")]))
    live.publish()
    level = open_store(tmp_path / "level.sqlite3")
    level.put([entry("y", "other")])
    level.put([entry("x", "another")])
    shutil.copy(root, tmp_path / "level")
    assert_equals_store(LiveIndex(level, tmp_path / "level"), level)
    other = open_store(tmp_path / "other.sqlite3", fingerprint="b" * 64)
    other.put([entry("a", "one")])
    other.put([entry("b", "two"), entry("c", "three")])
    shutil.copy(root, tmp_path / "other")
    opened = LiveIndex(other, tmp_path / "other")
    assert_equals_store(opened, other)
    assert load_snapshot(tmp_path / "other")[0] == opened.manifest


def test_a_snapshot_that_cannot_be_published_is_only_logged(
    store: DocumentStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    assert_equals_store: Check,
) -> None:
    store.put([entry("a")])
    root.mkdir()
    live = LiveIndex(store, root)
    assert "the index is complete in memory only" in caplog.text
    assert live.manifest.generation == 0
    assert_equals_store(live, store)


def test_reading_only_publishes_nothing_and_can_follow(
    open_store: OpenStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    writer = open_store()
    writer.put([entry("a", "one")])
    store = open_store(read_only=True)
    live = LiveIndex(store, root, read_only=True)
    assert_equals_store(live, store)
    writer.put([entry("b", "two")])
    live.catch_up()
    assert_equals_store(live, store)
    live.rebuild()
    assert_equals_store(live, store)
    with pytest.raises(StoreError, match="opened for reading only"):
        live.publish()
    assert not root.exists()

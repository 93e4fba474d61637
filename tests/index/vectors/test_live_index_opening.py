import logging
import shutil
from pathlib import Path

import pytest

from index.errors import StoreError
from index.store.document_store import SQLiteDocumentStore
from index.vectors.live_index import open_live_index
from index.vectors.snapshot import read_current_snapshot, verify_current_snapshot
from tests.tools.index_fixtures import Check, MakeEntry, OpenStore


def test_opening_replays_what_the_store_did_since_the_snapshot(
    open_store: OpenStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    assert_equals_store: Check,
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


@pytest.mark.parametrize("name", ["CURRENT", "0000000002/manifest.json", "0000000002/index.bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_snapshot_is_built_again_from_the_store(
    store: SQLiteDocumentStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: str,
    assert_equals_store: Check,
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
    open_store: OpenStore,
    tmp_path: Path,
    root: Path,
    entry: MakeEntry,
    assert_equals_store: Check,
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
    read_current_snapshot(
        tmp_path / "other", "int8", fingerprint="b" * 64, dimension=other.dimension
    )


def test_a_snapshot_that_cannot_be_published_is_only_logged(
    store: SQLiteDocumentStore,
    root: Path,
    entry: MakeEntry,
    caplog: pytest.LogCaptureFixture,
    assert_equals_store: Check,
) -> None:
    store.put([entry("a")])
    root.write_text("a file where the directory should be")
    live = open_live_index(store, root)
    assert "the index is complete in memory only" in caplog.text
    assert live.generation == 0
    assert_equals_store(live, store)


def test_reading_only_publishes_nothing_and_can_follow(
    open_store: OpenStore,
    root: Path,
    entry: MakeEntry,
    assert_equals_store: Check,
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

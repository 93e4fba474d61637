"""The change log is bounded, and what it has forgotten is never missed unnoticed."""

from contextlib import closing
from pathlib import Path

import pytest

import index.store.change_log
from index.directory.data_directory import open_data_directory
from index.errors import SnapshotError
from index.store.document_store import DocumentStore
from index.vectors.live_index import LiveIndex, read_snapshot
from tests.index.conftest import sql
from tests.kit.index_fixtures import Check, Fill, MakeEntry, MakeVectors, OpenStore


def removals(path: Path) -> int:
    return int(sql(path, "SELECT count(*) FROM removals")[0][0])


def test_what_a_thousand_versions_leave_is_bounded(
    store: DocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = LiveIndex(store, root)
    for version in range(200):
        live.apply(store.put([entry(f"d{n}", f"text {n} {version}") for n in range(5)]))
        if version % 20 == 19:
            live.publish()
    assert removals(store.path) == 100  # those since the generation before the newest
    assert store.log.start == 180
    assert_equals_store(LiveIndex(store, root), store)


def test_a_reader_of_the_generation_before_can_follow(
    store: DocumentStore,
    open_store: OpenStore,
    root: Path,
    entry: MakeEntry,
    assert_equals_store: Check,
) -> None:
    live = LiveIndex(store, root)
    readers = []
    for version in range(4):
        live.apply(store.put([entry("a", f"{version}"), entry("b", f"other {version}")]))
        live.publish()
        readers.append(LiveIndex(open_store(read_only=True), root, read_only=True))
    store.delete(["a"])
    for reader in readers:  # those of earlier ones are made again
        reader.catch_up()
        assert_equals_store(reader, store)
    assert [reader.manifest.generation for reader in readers[2:]] == [4, 5]


def test_drift_is_the_same_after_forgetting(
    store: DocumentStore, root: Path, vectors: MakeVectors, fill: Fill, entry: MakeEntry
) -> None:
    fill(store, vectors(40, seed=1))
    live = LiveIndex(store, root)
    live.apply(store.delete([f"d{n}" for n in range(10)]))
    for version in range(5):
        live.apply(store.put([entry("new", f"text {version}")]))
        live.publish()
    drift = live.measure_drift()
    assert (drift.added, drift.removed) == (1 / 40, 10 / 40)
    assert removals(store.path) == 1
    live.retrain(0.0)
    assert live.measure_drift().removed == 0.0


def test_a_snapshot_older_than_the_log_is_not_used(
    store: DocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = LiveIndex(store, root)
    live.apply(store.put([entry("a", "one"), entry("b", "two")]))
    live.publish()
    live.apply(store.delete(["a"]))
    store.log.forget(store.sequence)
    assert store.log.since(1) is None
    assert store.log.added_after(0)[1].size == 1
    with pytest.raises(SnapshotError, match="holds change 1 of the store"):
        read_snapshot(store, root, "int8")
    opened = LiveIndex(store, root)
    assert opened.manifest.sequence == store.sequence
    assert_equals_store(opened, store)


def test_a_reader_that_fell_behind(
    tmp_path: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    about = {"fingerprint": "a" * 64, "dimension": 16}
    with (
        closing(open_data_directory(tmp_path / "data", **about)) as writer,
        closing(open_data_directory(tmp_path / "data", **about, read_only=True)) as reader,
    ):
        writer.index.apply(writer.store.put([entry("a", "one"), entry("b", "two")]))
        reader.index.catch_up()
        for version in range(4):
            writer.index.apply(writer.store.put([entry("a", f"version {version}")]))
            writer.index.publish()
        assert 0 < reader.index.sequence < writer.store.log.start
        reader.index.catch_up()
        assert_equals_store(reader.index, reader.store)


def test_it_is_forgotten_in_small_transactions(
    store: DocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.store.change_log, "_REMOVALS_A_TRANSACTION", 2)
    for version in range(8):
        store.put([entry("a", f"text {version}")])
    assert store.log.forget(5) == 4
    assert store.log.forget(5) == 0
    assert store.log.forget(3) == 0
    assert store.log.start == 5
    changes = store.log.since(5)
    assert changes is not None
    assert changes.removed == [5, 6, 7]

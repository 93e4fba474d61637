"""The change log is bounded, and what it has forgotten is never missed unnoticed."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import index.store.change_log
from index.directory.data_directory import open_data_directory
from index.errors import SnapshotError, StoreError
from index.sqlite.task_state import LOG_START, read_count
from index.store.document_store import SQLiteDocumentStore
from index.vectors.live_index import open_live_index, read_snapshot
from index.vectors.snapshot import oldest_sequence
from tests.index.conftest import sql
from tests.kit.index_fixtures import Check, Fill, MakeEntry, MakeVectors


def removals(path: Path) -> int:
    return int(sql(path, "SELECT count(*) FROM removals")[0][0])


def test_what_a_thousand_versions_leave_is_bounded(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = open_live_index(store, root)
    for version in range(200):
        live.apply(store.put([entry(f"d{n}", f"text {n} {version}") for n in range(5)]))
        if version % 20 == 19:
            live.publish()
    assert removals(store.path) == 100  # those since the generation before the newest
    assert store.log.start == oldest_sequence(root) == 180
    assert_equals_store(open_live_index(store, root), store)


def test_both_generations_that_are_kept_can_follow(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = open_live_index(store, root)
    for version in range(6):
        live.apply(store.put([entry("a", f"{version}"), entry("b", f"other {version}")]))
        live.publish()
    store.delete(["a"])
    newest = (root / "CURRENT").read_text()
    generation = f"{live.generation - 1:010}"
    digest = hashlib.sha256((root / generation / "manifest.json").read_bytes()).hexdigest()
    (root / "CURRENT").write_text(f"{generation} {digest}\n")
    older = open_live_index(store, root)
    assert older.generation == live.generation - 1
    assert_equals_store(older, store)
    (root / "CURRENT").write_text(newest)
    assert_equals_store(open_live_index(store, root), store)


def test_drift_is_the_same_after_forgetting(
    store: SQLiteDocumentStore, root: Path, vectors: MakeVectors, fill: Fill, entry: MakeEntry
) -> None:
    fill(store, vectors(40, seed=1))
    live = open_live_index(store, root)
    live.apply(store.delete([f"d{n}" for n in range(10)]))
    for version in range(5):
        live.apply(store.put([entry("new", f"text {version}")]))
        live.publish()
    drift = live.measure_drift()
    assert (drift.added, drift.removed) == (1 / 40, 10 / 40)
    assert removals(store.path) == 10 + 1
    live.retrain(0.0)
    assert live.measure_drift().removed == 0.0
    live.publish()
    live.publish()
    assert removals(store.path) == 0


def test_a_snapshot_older_than_the_log_is_not_used(
    store: SQLiteDocumentStore, root: Path, entry: MakeEntry, assert_equals_store: Check
) -> None:
    live = open_live_index(store, root)
    live.apply(store.put([entry("a", "one"), entry("b", "two")]))
    live.publish()
    live.apply(store.delete(["a"]))
    store.log.forget(store.sequence, trained=0)
    with pytest.raises(StoreError, match="the changes since 1 are forgotten"):
        store.changes_since(1)
    assert store.changes_since(0).added.size == 1
    with pytest.raises(SnapshotError, match="older than the changes"):
        read_snapshot(store, root, "int8")
    opened = open_live_index(store, root)
    assert opened.generation == live.generation + 1
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
    store: SQLiteDocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.store.change_log, "_REMOVALS_A_TRANSACTION", 2)
    for version in range(8):
        store.put([entry("a", f"text {version}")])
    assert store.log.forget(5, trained=0) == 4
    assert store.log.forget(5, trained=0) == 0
    assert store.log.forget(3, trained=0) == 0
    assert store.log.start == 5
    np.testing.assert_array_equal(store.changes_since(5).removed, [5])


@pytest.mark.parametrize("state", ["", "{", json.dumps(-3), json.dumps("x"), json.dumps(None)])
def test_a_damaged_note_is_none(store: SQLiteDocumentStore, state: str) -> None:
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("INSERT INTO maintenance_state VALUES ('log start', ?)", (state,))
        assert read_count(connection, LOG_START) is None

"""R11: a backup made while others write, restored on an empty machine, answers the same."""

import itertools
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import index.directory.backup
from encoder.arrays import Float32
from encoder.checkpoint import Checkpoint
from index.directory import collections
from index.directory.backup import restore_backup, write_backup
from index.directory.data_directory import (
    CALIBRATION_FILE,
    FUSION_FILE,
    STORE_FILE,
    DataDirectory,
)
from index.errors import BackupError, StoreError
from index.search.calibrate import OTHER_RULE, open_scoring
from index.search.corpus_calibration import CorpusCalibration
from index.search.score import CorpusFusion, LinearFusion
from tests.index.conftest import sql
from tests.index.directory.conftest import fill, opened
from tests.kit.calibrations import SPREADS
from tests.kit.index_fixtures import FINGERPRINT, MakeEntry, MakeVectors
from tests.kit.small_disk import SmallDisk

QUERIES = 200


def answers(directory: DataDirectory, queries: Float32) -> list[object]:
    """Ids, scores and what is shown, by vectors and by words."""
    found = directory.index.search(queries, 10)
    shown = directory.store.get(found.ids.ravel().tolist())
    words = [
        directory.store.lexical.search(directory.store.lexical.read(f"word{n} text {n}"), 10)
        for n in range(20)
    ]
    return [
        *(found.ids.tolist(), found.scores.tolist(), shown),
        [(word.vector_ids.tolist(), word.scores.tolist()) for word in words],
    ]


def test_a_restored_backup_answers_the_same(
    data: Path, vectors: MakeVectors, tmp_path: Path
) -> None:
    queries = vectors(QUERIES, seed=5)
    (data / "notes.txt").write_text("of somebody else")
    (data / "damaged.jsonl").write_text("{}\n")
    (data / "uploads").mkdir()
    (data / "uploads" / "a1.ndjson").write_text("{}\n")
    with opened(data) as server:
        written = write_backup(data, tmp_path / "backup")
        expected = answers(server, queries)
        sequence = server.store.sequence
    shutil.rmtree(data)
    restored = restore_backup(tmp_path / "backup", tmp_path / "new")
    assert restored == written
    with opened(tmp_path / "new") as server:
        assert answers(server, queries) == expected
        assert server.store.sequence == sequence
        assert len(server.store) == written.documents == 311
    assert (tmp_path / "new" / "uploads" / "a1.ndjson").read_text() == "{}\n"
    left = {path.name for path in (tmp_path / "new").iterdir()}
    derived = {"vectors.faiss", "lexical", "blocks.sqlite3", "families.sqlite3"}
    assert left - derived == {"damaged.jsonl", "lock", "store.sqlite3", "uploads"}


@pytest.mark.parametrize("moment", [CALIBRATION_FILE, FUSION_FILE])
def test_an_adoption_during_a_backup_loses_the_calibration_at_most(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def adopt(weight: float) -> None:
        """Do what `longmatch tune` does when it adopts weights."""
        rule = LinearFusion(weight)
        CorpusFusion(FINGERPRINT, rule, {}).write(data)
        CorpusCalibration(FINGERPRINT, SPREADS, 0.3, rule, {}).write(data)

    def copied(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name == moment:
            adopt(0.2)

    copy = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", copied)
    adopt(0.1)
    write_backup(data, tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "new")
    fusion = CorpusFusion.read(tmp_path / "new", FINGERPRINT)
    assert fusion is not None
    scoring = open_scoring(replace(checkpoint, files={}), tmp_path / "new")
    assert scoring.rule == fusion.rule
    assert scoring.unmeasured == (OTHER_RULE if moment == CALIBRATION_FILE else None)


def test_content_that_is_replaced_is_not_backed_up(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(source: Path, target: Path) -> None:
        copy(source, target)
        shutil.copyfile(target, source.with_name("other"))
        source.with_name("other").replace(source)

    copy = index.directory.backup.copy_database
    monkeypatch.setattr(index.directory.backup, "copy_database", copied)
    with pytest.raises(BackupError, match="its content was replaced meanwhile: try again"):
        write_backup(data, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_backup_under_load_holds_all_that_was_acknowledged(
    data: Path, entry: MakeEntry, tmp_path: Path
) -> None:
    acknowledged: list[int] = []
    stop = threading.Event()
    with opened(data) as server:

        def write() -> None:
            for number in itertools.count(1_000):
                fill(server, entry, range(number, number + 1))
                acknowledged.append(number)
                if number % 20 == 0:
                    server.index.publish()
                if stop.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        for turn in range(4):
            before = len(acknowledged)
            write_backup(data, tmp_path / f"backup{turn}")
            after = len(acknowledged)
            restore_backup(tmp_path / f"backup{turn}", tmp_path / f"new{turn}")
            with opened(tmp_path / f"new{turn}") as restored:
                names = [f"d{number}" for number in acknowledged[:before]]
                found = restored.store.find([f"d{n}" for n in range(1_000, 1_000 + after + 2)])
                assert set(names) <= found.keys()
                ids, stored = restored.store.vectors(restored.store.log.added_after(0)[1])
                assert len(restored.index) == len(ids)
                np.testing.assert_array_equal(restored.index.search(stored, 1).ids[:, 0], ids)
        stop.set()
        writer.join()


def test_no_keys_and_no_log_are_in_a_backup(data: Path, tmp_path: Path) -> None:
    """A key that was revoked after the backup would be accepted again."""
    (data / "keys.json").write_text("{}")
    (data / "audit.jsonl").write_text("{}\n")
    backup = tmp_path / "backup"
    write_backup(data, backup)
    names = {path.name for path in backup.iterdir()}
    assert names == {"SHA256SUMS", "store.sqlite3"}


def test_the_collections_are_in_it(data: Path, tmp_path: Path, entry: MakeEntry) -> None:
    def make(path: Path) -> None:
        with opened(path) as directory:
            fill(directory, entry, range(300, 320))

    collections.make_collection(data, "papers", make)
    (data / collections.COLLECTIONS_DIRECTORY / ".old.removed").mkdir()
    with opened(data), opened(collections.collection_path(data, "papers")):
        written = write_backup(data, tmp_path / "backup")
    assert written.collections == ("papers",)
    restored = tmp_path / "restored"
    assert restore_backup(tmp_path / "backup", restored) == written
    assert collections.collection_names(restored) == ["papers"]
    with opened(restored) as directory:
        assert len(directory.store) == len(directory.index) == written.documents
    with opened(collections.collection_path(restored, "papers")) as directory:
        assert len(directory.store) == len(directory.index) == 20
        assert directory.store.find(["d0", "d300"]).keys() == {"d300"}
    (collections.collection_path(data, "papers") / STORE_FILE).write_bytes(b"x" * 4096)
    with pytest.raises((BackupError, StoreError), match="papers"):
        write_backup(data, tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()


def test_a_collection_without_a_store_stops_a_backup(data: Path, tmp_path: Path) -> None:
    """It may have lost its documents; what is no collection is named, and can be moved away."""
    collections.collection_path(data, "notes").mkdir(parents=True)
    with pytest.raises(StoreError, match="notes: there is no data directory here"):
        write_backup(data, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_what_nobody_may_write_is_backed_up(
    data: Path, tmp_path: Path, small_disk: Callable[[int], SmallDisk]
) -> None:
    """Also a database besides the store that was closed, so that its log is gone."""
    with closing(sqlite3.connect(data / "state.sqlite3")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE one (two)")
    disk = small_disk(64)
    source = shutil.copytree(data, disk.path / "data")
    disk.protect()
    written = write_backup(source, tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "new")
    with opened(tmp_path / "new") as directory:
        assert len(directory.store) == written.documents > 0
    assert sql(tmp_path / "new/state.sqlite3", "SELECT name FROM sqlite_schema") == [("one",)]


def test_a_backup_keeps_file_permissions(data: Path, tmp_path: Path) -> None:
    names = ("state.sqlite3", "damaged.jsonl")
    for name in names:
        (data / name).touch(0o600)
    sql(data / names[0], "CREATE TABLE secrets (word TEXT)")
    write_backup(data, tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    for name in names:
        assert (tmp_path / "restored" / name).stat().st_mode & 0o777 == 0o600

"""What is damaged, incomplete, foreign or in the way is neither backed up nor restored."""

import re
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import index.directory.backup
from encoder.checkpoint import Checkpoint
from index.directory.backup import CHECKSUMS_FILE, restore_backup, write_backup
from index.errors import BackupError, DataDirectoryInUseError, StoreError
from tests.index.conftest import sql
from tests.index.directory.conftest import opened


def test_another_checkpoint_is_refused(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup")
    other = replace(checkpoint, name="theirs", fingerprint="b" * 64)
    with pytest.raises(BackupError, match=r"encoder a{12}, not with theirs \(b{12}\)"):
        restore_backup(tmp_path / "backup", tmp_path / "new", other)
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock"}


def test_nothing_is_replaced(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match="exists already"):
        write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match="lies in the data directory"):
        write_backup(data, data / "backup")
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(tmp_path / "backup", data, checkpoint)
    with opened(tmp_path / "new"), pytest.raises(DataDirectoryInUseError):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    with pytest.raises(StoreError, match="no data directory"):
        write_backup(tmp_path / "nothing", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def changed(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0x10
    path.write_bytes(content)


def test_any_changed_byte_is_found_before_anything_is_restored(
    data: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    source = tmp_path / "backup"
    write_backup(data, source)
    files = list(source.iterdir())
    random = np.random.default_rng(3)
    for turn in range(30):
        path = files[turn % len(files)]
        kept = path.read_bytes()
        changed(path, int(random.integers(len(kept))))
        with pytest.raises(BackupError):
            restore_backup(source, tmp_path / "new", checkpoint)
        assert {path.name for path in (tmp_path / "new").glob("*")} <= {"lock"}
        path.write_bytes(kept)
    restore_backup(source, tmp_path / "new", checkpoint)


def test_half_a_backup_is_none(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    (data / "fusion.json").write_text("{}")
    write_backup(data, tmp_path / "backup")
    lines = (tmp_path / "backup" / CHECKSUMS_FILE).read_text().splitlines(keepends=True)
    for half in ("", lines[0], lines[1], "".join(lines)[:-20]):
        (tmp_path / "backup" / CHECKSUMS_FILE).write_text(half)
        with pytest.raises(BackupError, match=r"does not name|which no snapshot has"):
            restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    for name in (CHECKSUMS_FILE, "store.sqlite3"):
        shutil.rmtree(tmp_path / "backup")
        write_backup(data, tmp_path / "backup")
        (tmp_path / "backup" / name).unlink()
        with pytest.raises(BackupError, match=f"is not a complete backup: .*{name}"):
            restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)


PLANTED = (
    *("keys.json", "audit.jsonl", "../out", "/tmp/out", ".reencoding/x", "collections/evil"),
    *("collections/a/keys.json", "collections/default/store.sqlite3", "collections/../keys.json"),
    *("uploads/../keys.json", "uploads/a/b.ndjson", "vectors.faiss", "store.sqlite3/x", "lock"),
)


@pytest.mark.parametrize("name", PLANTED)
def test_what_no_snapshot_has_is_not_restored(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    """Whether the file of checksums names it or not, and wherever it leads."""
    backup = tmp_path / "backup"
    write_backup(data, backup)
    with (backup / CHECKSUMS_FILE).open("a") as lines:
        lines.write(f"{sha256(b'{}').hexdigest()}  {name}\n")
    with pytest.raises(BackupError, match=re.escape(f"{name}', which no snapshot has")):
        restore_backup(backup, tmp_path / "new", checkpoint)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "target"), [("uploads", "/etc"), ("fusion.json", "/etc/hostname")]
)
def test_what_the_checksums_do_not_name_is_refused(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, name: str, target: str
) -> None:
    write_backup(data, tmp_path / "backup")
    (tmp_path / "backup" / name).symlink_to(target)
    with pytest.raises(BackupError, match=f"holds '{name}', which {CHECKSUMS_FILE} does not name"):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)


def test_damaged_rows_are_not_backed_up(data: Path, tmp_path: Path) -> None:
    sql(data / "store.sqlite3", "UPDATE documents SET text = 'forged' WHERE id = 'd5'")
    with pytest.raises(
        BackupError, match=r"is damaged \(document 'd5', one of 1\): see longmatch doctor"
    ):
        write_backup(data, tmp_path / "backup")
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_damaged_store_is_not_backed_up(data: Path, tmp_path: Path) -> None:
    store = data / "store.sqlite3"
    content = bytearray(store.read_bytes())
    content[4096 * 5 : 4096 * 30] = bytes(4096 * 25)
    store.write_bytes(content)
    with pytest.raises((BackupError, StoreError), match=r"store\.sqlite3"):
        write_backup(data, tmp_path / "backup")
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_damaged_index_is_left_out_and_built_again(
    data: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    changed(data / "vectors.faiss", 500)
    written = write_backup(data, tmp_path / "backup")
    assert written.files == 1
    restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    with opened(tmp_path / "new") as restored:
        assert len(restored.index) == written.documents


def test_too_little_room_is_said_beforehand(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_backup(data, tmp_path / "whole")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        index.directory.backup.shutil, "disk_usage", lambda _: usage._replace(free=9)
    )
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        restore_backup(tmp_path / "whole", tmp_path / "new", checkpoint)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "whole", "new"}
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock"}


def test_a_backup_that_is_not_there(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="nothing: there is no such backup"):
        restore_backup(tmp_path / "nothing", tmp_path / "new", checkpoint)
    assert not (tmp_path / "new").exists()

"""What is damaged, incomplete, foreign or in the way is neither backed up nor restored."""

import re
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import index.directory.backup
from index.directory.backup import CHECKSUMS_FILE, restore_backup, write_backup
from index.errors import BackupError, DataDirectoryInUseError, StoreError
from tests.index.conftest import sql
from tests.index.directory.conftest import opened


def test_nothing_is_replaced(data: Path, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match="exists already"):
        write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match="lies in the data directory"):
        write_backup(data, data / "backup")
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(tmp_path / "backup", data)
    with opened(tmp_path / "new"), pytest.raises(DataDirectoryInUseError):
        restore_backup(tmp_path / "backup", tmp_path / "new")
    with pytest.raises(StoreError, match="no data directory"):
        write_backup(tmp_path / "nothing", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def changed(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0x10
    path.write_bytes(content)


def test_any_changed_byte_is_found_before_anything_is_restored(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "backup"
    write_backup(data, source)
    files = list(source.iterdir())
    random = np.random.default_rng(3)
    for turn in range(30):
        path = files[turn % len(files)]
        kept = path.read_bytes()
        changed(path, int(random.integers(len(kept))))
        with pytest.raises(BackupError):
            restore_backup(source, tmp_path / "new")
        assert {path.name for path in (tmp_path / "new").glob("*")} <= {"lock"}
        path.write_bytes(kept)
    restore_backup(source, tmp_path / "new")


def test_half_a_backup_is_none(data: Path, tmp_path: Path) -> None:
    (data / "fusion.json").write_text("{}")
    write_backup(data, tmp_path / "backup")
    lines = (tmp_path / "backup" / CHECKSUMS_FILE).read_text().splitlines(keepends=True)
    for half in ("", lines[0], lines[1], "".join(lines)[:-20]):
        (tmp_path / "backup" / CHECKSUMS_FILE).write_text(half)
        with pytest.raises(BackupError, match="is not a complete backup"):
            restore_backup(tmp_path / "backup", tmp_path / "new")
    for name in (CHECKSUMS_FILE, "store.sqlite3"):
        shutil.rmtree(tmp_path / "backup")
        write_backup(data, tmp_path / "backup")
        (tmp_path / "backup" / name).unlink()
        with pytest.raises(BackupError, match=f"is not a complete backup: .*{name}"):
            restore_backup(tmp_path / "backup", tmp_path / "new")


PLANTED = (
    *("keys.json", "audit.jsonl", "../out", "/tmp/out", ".reencoding/x", "collections/evil"),
    *("collections/a/keys.json", "collections/default/store.sqlite3", "collections/../keys.json"),
    *("uploads/../keys.json", "uploads/a/b.ndjson", "vectors.faiss", "store.sqlite3/x", "lock"),
)


@pytest.mark.parametrize("name", PLANTED)
def test_what_no_backup_has_is_not_restored(data: Path, tmp_path: Path, name: str) -> None:
    """Though the file of checksums names it, and wherever it leads."""
    backup = tmp_path / "backup"
    write_backup(data, backup)
    if not name.startswith(("/", "..", "store")) and ".." not in name:
        (backup / name).parent.mkdir(parents=True, exist_ok=True)
        (backup / name).write_text("{}")
    with (backup / CHECKSUMS_FILE).open("a") as lines:
        lines.write(f"{sha256(b'{}').hexdigest()}  {name}\n")
    with pytest.raises(BackupError, match=rf"'{re.escape(name)}' .* or is no file of a backup"):
        restore_backup(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "out").exists()


def test_what_the_checksums_do_not_name_is_not_restored(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    write_backup(data, backup)
    (backup / "keys.json").write_text("{}")
    (backup / "uploads").symlink_to("/etc")
    restore_backup(backup, tmp_path / "new")
    assert not {"keys.json", "uploads"} & {path.name for path in (tmp_path / "new").iterdir()}
    (backup / "fusion.json").symlink_to("/etc/hostname")
    with pytest.raises(BackupError, match=r"'fusion\.json' is missing, is not named in SHA256SUMS"):
        restore_backup(backup, tmp_path / "other")


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


def test_a_damaged_index_is_left_out_and_built_again(data: Path, tmp_path: Path) -> None:
    changed(data / "vectors.faiss", 500)
    written = write_backup(data, tmp_path / "backup")
    assert written.files == 1
    restore_backup(tmp_path / "backup", tmp_path / "new")
    with opened(tmp_path / "new") as restored:
        assert len(restored.index) == written.documents


def test_too_little_room_is_said_beforehand(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_backup(data, tmp_path / "whole")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        index.directory.backup.shutil, "disk_usage", lambda _: usage._replace(free=9)
    )
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        write_backup(data, tmp_path / "backup")
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        restore_backup(tmp_path / "whole", tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "whole", "new"}
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock"}


def test_a_backup_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="nothing: there is no such backup"):
        restore_backup(tmp_path / "nothing", tmp_path / "new")
    assert not (tmp_path / "new").exists()

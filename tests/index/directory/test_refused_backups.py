"""What is damaged, incomplete, foreign or in the way is neither backed up nor restored."""

import io
import re
import shutil
import tarfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import index.directory.backup
from encoder.checkpoint import Checkpoint
from index.directory.backup import (
    MANIFEST_FILE,
    BackupFile,
    format_manifest,
    restore_backup,
    write_backup,
)
from index.errors import BackupError, DataDirectoryInUseError, StoreError
from tests.index.conftest import sql
from tests.index.directory.conftest import opened


def test_another_checkpoint_is_refused(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup", checkpoint)
    other = replace(checkpoint, name="theirs", fingerprint="b" * 64)
    with pytest.raises(BackupError, match=r"ours \(a{12}\), not with theirs \(b{12}\)"):
        restore_backup(tmp_path / "backup", tmp_path / "new", other)
    assert not (tmp_path / "new").exists()
    unnamed = write_backup(data, tmp_path / "unnamed", other)
    assert unnamed.checkpoint == ""


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_only_what_the_key_signed_is_restored(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    ours, theirs = b"k" * 16, b"K" * 16
    write_backup(data, tmp_path / f"unsigned-{name}", checkpoint)
    signed = tmp_path / name
    write_backup(data, signed, checkpoint, key=ours)
    with pytest.raises(BackupError, match=r"manifest.json: is not signed"):
        restore_backup(tmp_path / f"unsigned-{name}", tmp_path / "new", checkpoint, key=ours)
    with pytest.raises(BackupError, match=r"manifest.json: was signed with another key"):
        restore_backup(signed, tmp_path / "new", checkpoint, key=theirs)
    assert not (tmp_path / "new").exists()
    restore_backup(signed, tmp_path / "new", checkpoint, key=ours)
    restore_backup(signed, tmp_path / "unchecked", checkpoint)


def test_nothing_is_replaced(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup", checkpoint)
    with pytest.raises(BackupError, match="exists already"):
        write_backup(data, tmp_path / "backup", checkpoint)
    with pytest.raises(BackupError, match="lies in the data directory"):
        write_backup(data, data / "backup", checkpoint)
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(tmp_path / "backup", data, checkpoint)
    with opened(tmp_path / "new"), pytest.raises(DataDirectoryInUseError):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    with pytest.raises(StoreError, match="no data directory"):
        write_backup(tmp_path / "nothing", tmp_path / "other", checkpoint)
    assert not (tmp_path / "other").exists()


def changed(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_any_changed_byte_is_found_before_anything_is_restored(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    write_backup(data, tmp_path / name, checkpoint)
    source = tmp_path / name
    files = [path for path in source.rglob("*") if path.is_file()] or [source]
    random = np.random.default_rng(3)
    for turn in range(30):
        path = files[turn % len(files)]
        kept = path.read_bytes()
        changed(path, int(random.integers(len(kept))))
        try:
            restore_backup(source, tmp_path / "new", checkpoint)
        except BackupError:
            assert {path.name for path in (tmp_path / "new").glob("*")} <= {"lock"}
        else:  # only padding or an owner in a header of the archive
            assert source.is_file()
            shutil.rmtree(tmp_path / "new")
        path.write_bytes(kept)
    restore_backup(source, tmp_path / "new", checkpoint)


def test_half_a_backup_is_none(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_backup(data, tmp_path / "backup", checkpoint)
    write_backup(data, tmp_path / "backup.tar", checkpoint)
    whole = (tmp_path / "backup.tar").read_bytes()
    for size in (0, 100, 5_000, len(whole) // 2):
        (tmp_path / "half.tar").write_bytes(whole[:size])
        with pytest.raises(BackupError, match="complete backup"):
            restore_backup(tmp_path / "half.tar", tmp_path / "new", checkpoint)
    (tmp_path / "backup" / "store.sqlite3").unlink()
    with pytest.raises(BackupError, match=r"store.sqlite3"):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    (tmp_path / "backup" / MANIFEST_FILE).unlink()
    with pytest.raises(BackupError, match="not a complete backup"):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)


def test_a_manifest_of_a_stranger(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    manifest = write_backup(data, tmp_path / "backup", checkpoint)
    path = tmp_path / "backup" / MANIFEST_FILE
    file = next(iter(manifest.files.values()))
    path.write_bytes(format_manifest(replace(manifest, files={"../out": file})))
    with pytest.raises(BackupError, match=r"names '\.\./out', which no snapshot has"):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    for content in (
        *("[]", "{}", '{"format": 2}', '{"format": 1, "sha256": ""}', "\xff", "[" * 9_999),
    ):
        path.write_text(content, encoding="latin-1")
        with pytest.raises(BackupError, match=MANIFEST_FILE):
            restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    path.unlink()
    with tarfile.open(tmp_path / "linked.tar", "w") as archive:
        link = tarfile.TarInfo(MANIFEST_FILE)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(BackupError, match="manifest"):
        restore_backup(tmp_path / "linked.tar", tmp_path / "new", checkpoint)


PLANTED = (
    *("keys.json", "audit.jsonl", "../out", "/tmp/out", ".reencoding/x", "collections/evil"),
    *("collections/a/keys.json", "collections/default/store.sqlite3", "collections/../keys.json"),
    *("uploads/../keys.json", "uploads/a/b.ndjson", "snapshots/CURRENT", "store.sqlite3/x", "lock"),
)


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("known", [True, False], ids=["named", "unnamed"])
def test_what_no_snapshot_has_is_not_restored(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, name: str, known: bool
) -> None:
    """Whether the manifest names it, with its size and checksum, or not."""
    manifest = write_backup(data, tmp_path / "backup", checkpoint)
    content = b"{}"
    file = BackupFile(len(content), sha256(content).hexdigest())
    files = {**manifest.files, name: file} if known else manifest.files
    added = {MANIFEST_FILE: format_manifest(replace(manifest, files=files)), name: content}
    with tarfile.open(tmp_path / "planted.tar", "w") as archive:
        for member in (MANIFEST_FILE, *manifest.files, name):
            found = added.get(member) or (tmp_path / "backup" / member).read_bytes()
            header = tarfile.TarInfo(member)
            header.size = len(found)
            archive.addfile(header, io.BytesIO(found))
    with pytest.raises(BackupError, match=re.escape(f"{name!r}, which no snapshot has")):
        restore_backup(tmp_path / "planted.tar", tmp_path / "new", checkpoint)
    assert {path.name for path in (tmp_path / "new").glob("*")} <= {"lock"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_links_and_folders_in_an_archive_are_refused(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, kind: bytes
) -> None:
    write_backup(data, tmp_path / "backup.tar", checkpoint)
    with tarfile.open(tmp_path / "backup.tar", "a") as archive:
        link = tarfile.TarInfo("fusion.json")
        link.type, link.linkname = kind, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(BackupError, match=r"holds 'fusion\.json', which is no file"):
        restore_backup(tmp_path / "backup.tar", tmp_path / "new", checkpoint)
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock"}


@pytest.mark.parametrize("target", ["/etc/hostname", "/etc"])
def test_a_link_in_a_folder_is_refused(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, target: str
) -> None:
    write_backup(data, tmp_path / "backup", checkpoint)
    (tmp_path / "backup" / "uploads").symlink_to(target)
    with pytest.raises(BackupError, match="holds 'uploads', which is no file"):
        restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)


def test_damaged_rows_are_not_backed_up(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    sql(data / "store.sqlite3", "UPDATE documents SET text = 'forged' WHERE id = 'd5'")
    with pytest.raises(
        BackupError, match=r"is damaged \(document 'd5', one of 1\): see longmatch doctor"
    ):
        write_backup(data, tmp_path / "backup", checkpoint)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_damaged_store_is_not_backed_up(
    data: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    store = data / "store.sqlite3"
    content = bytearray(store.read_bytes())
    content[4096 * 5 : 4096 * 30] = bytes(4096 * 25)
    store.write_bytes(content)
    with pytest.raises((BackupError, StoreError), match=r"store\.sqlite3"):
        write_backup(data, tmp_path / "backup", checkpoint)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_damaged_index_is_left_out_and_built_again(
    data: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    for path in (data / "snapshots").glob("*.index"):
        changed(path, 500)
    manifest = write_backup(data, tmp_path / "backup", checkpoint)
    assert list(manifest.files) == ["store.sqlite3"]
    restore_backup(tmp_path / "backup", tmp_path / "new", checkpoint)
    with opened(tmp_path / "new") as restored:
        assert len(restored.index) == manifest.documents


def test_too_little_room_is_said_beforehand(
    data: Path, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_backup(data, tmp_path / "whole", checkpoint)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        index.directory.backup.shutil, "disk_usage", lambda _: usage._replace(free=9)
    )
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        write_backup(data, tmp_path / "backup", checkpoint)
    with pytest.raises(BackupError, match=r"bytes are needed and 9 are free"):
        restore_backup(tmp_path / "whole", tmp_path / "new", checkpoint)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "whole", "new"}
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock"}


def test_a_backup_that_is_not_there(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for name in ("nothing", "nothing.tar"):
        with pytest.raises(BackupError, match=f"{name}: there is no such backup"):
            restore_backup(tmp_path / name, tmp_path / "new", checkpoint)
    assert not (tmp_path / "new").exists()

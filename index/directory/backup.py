"""Backups of a data directory: made while a server writes to it, checked, and restored.

A backup is a folder, or a tar file of one, not compressed: first `manifest.json`, which has the
SHA-256 of each file, then the files of the data directory. It gets its name once it is complete and
has been read back; before, it is a hidden folder next to that name, which the next attempt deletes.
"""

import hashlib
import json
import logging
import os
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from encoder.adapter import parse_adapter
from encoder.atomic_files import replace_durably
from encoder.checkpoint import Checkpoint, file_digest, split_fingerprint
from encoder.errors import AdapterError
from index.directory.collections import (
    COLLECTIONS_DIRECTORY,
    check_collection,
    collection_names,
    collection_path,
    stored_collections,
)
from index.directory.data_directory import (
    ADAPTER_FILE,
    ARRIVING,
    CALIBRATION_FILE,
    FOLLOWER_FILES,
    FUSION_FILE,
    KEY_FILE,
    LOCK_FILE,
    SHADOW_TEST_FILE,
    SNAPSHOTS_DIRECTORY,
    STORE_FILE,
    locked,
    settle,
    swap_in,
    sync_tree,
)
from index.directory.file_digest import verify_digest
from index.errors import BackupError, SnapshotError, StorageError, StoreError
from index.lexical.lexical_index import LEXICAL_DIRECTORY
from index.sqlite.connections import open_reader, translated_errors
from index.vectors.snapshot import (
    CURRENT,
    INDEX_FILE,
    SNAPSHOT_MANIFEST,
    current_generation,
    verify_current_snapshot,
)

_SQLITE_MAGIC = b"SQLite format 3\x00"
_ATTEMPTS = 5  # to copy what others may replace in the meantime
_FITTED = (ADAPTER_FILE, CALIBRATION_FILE, FUSION_FILE, SHADOW_TEST_FILE)  # to the vectors
_OTHERWISE = (
    *_FITTED,
    KEY_FILE,
    LOCK_FILE,
    SNAPSHOTS_DIRECTORY,
    LEXICAL_DIRECTORY,
    STORE_FILE,
    COLLECTIONS_DIRECTORY,
)
_TRANSIENT = ("-wal", "-shm", "-journal", ".partial", ".new")  # endings of files in use

_log = logging.getLogger(__name__)


FORMAT = 1
ARCHIVE_ENDING = ".tar"
_LARGEST_MANIFEST = 16 * 2**20
_BUFFER = 2**20
MANIFEST_FILE = "manifest.json"
_OWN = stat.S_IRUSR | stat.S_IWUSR


@dataclass(frozen=True, slots=True)
class BackupFile:
    """Size in bytes and SHA-256, in hex, of one file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds.

    Attributes:
        created: ISO 8601 in UTC.
        checkpoint: name of the checkpoint, for display; empty if it is not known.
        base: fingerprint of that checkpoint.
        fingerprint: of the vectors; differs from `base` where there is a corpus adapter.
        dimension: of the vectors.
        sequence: of the store: the backup holds the changes up to this one.
        documents: their number, without those of its collections.
        files: by name relative to the backup, with "/".
    """

    created: str
    checkpoint: str
    base: str
    fingerprint: str
    dimension: int
    sequence: int
    documents: int
    files: Mapping[str, BackupFile]

    @property
    def collections(self) -> list[str]:
        """Names of the collections besides the data directory itself, in order."""
        parts = (PurePosixPath(name).parts for name in self.files)
        return sorted({part[1] for part in parts if part[0] == "collections"})


def copy_data_directory(data: Path, target: Path) -> None:
    """Copy a data directory into the folder `target`, as it is at one moment.

    Its collections are copied after it, each as it is at one moment.
    The index generation is copied first, so the copy of the store is never behind it and knows the
    changes that it lacks. All other files are copied too, except hidden ones, the lock, the API
    keys (a restored copy would accept revoked ones), and the copy of the lexical index, which is
    made when the copied directory is opened.

    Raises:
        BackupError: the copy of the store is damaged, or what belongs together was replaced again
            and again.
        OSError: something cannot be read or written.
        StoreError: the store cannot be read.
    """
    _copy_snapshot(data / SNAPSHOTS_DIRECTORY, target / SNAPSHOTS_DIRECTORY)
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or name.parts[0] in _OTHERWISE:
            continue
        if path.is_file() and not path.name.endswith(_TRANSIENT):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                _copy(path, target / name)
            except FileNotFoundError:  # a temporary file
                pass
            except (BackupError, StoreError) as error:
                if path.name not in FOLLOWER_FILES or isinstance(error, StorageError):
                    raise
                (target / name).unlink()  # damaged, and made again from the store
    _copy_fitted(data, target)
    for collection in stored_collections(data):
        copy = collection_path(target, collection)
        copy.mkdir(parents=True)
        copy_data_directory(collection_path(data, collection), copy)


def _copy_fitted(data: Path, target: Path) -> None:
    """Copy the store, and what was fitted to its vectors, as they belong together."""
    copied = None  # which file the copied store is of
    for _ in range(_ATTEMPTS):
        before = _versions(data)
        for name in _FITTED:
            (target / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # an optional file
                shutil.copyfile(data / name, target / name)
        if copied != before[STORE_FILE]:
            (target / STORE_FILE).unlink(missing_ok=True)
            copy_database(data / STORE_FILE, target / STORE_FILE)
            copied = before[STORE_FILE]
        if _versions(data) == before:
            return
    names = ", ".join(_FITTED)
    raise BackupError(
        f"{data}: {names} or the store changed {_ATTEMPTS} times while it was copied: try again"
    )


def _versions(data: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes when a file is replaced; of the store not what changes by writing."""
    found: dict[str, tuple[int, ...]] = {}
    for name in (*_FITTED, STORE_FILE):
        with suppress(FileNotFoundError):
            stat = (data / name).stat()
            found[name] = (stat.st_dev, stat.st_ino)
            if name != STORE_FILE:
                found[name] += (stat.st_mtime_ns, stat.st_size)
    if STORE_FILE not in found:
        raise BackupError(f"{data}: its content is being replaced: try again")
    return found


def copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite database that others may be writing to, and check the copy.

    The copy is made in one read transaction, which does not block writers.

    Raises:
        BackupError: the copy is damaged, because the source is.
        StoreError: the source cannot be read, or the copy not be written.
    """
    with translated_errors(source):
        reading, writing = open_reader(source), sqlite3.connect(target)
        with closing(reading), closing(writing):
            reading.backup(writing)
        with closing(sqlite3.connect(target)) as copy:
            problems = [row[0] for row in copy.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise BackupError(
            f"{source}: is damaged ({problems[0]}) and is not backed up: see longmatch doctor"
        )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        _create_file(target, os.fstat(file.fileno()).st_mode)
        database = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
        if not database:
            file.seek(0)
            with target.open("wb") as copy:
                shutil.copyfileobj(file, copy)
    if database:
        copy_database(source, target)


def _copy_snapshot(root: Path, target: Path) -> None:
    """Copy the current index generation, if there is a complete one."""
    for _ in range(_ATTEMPTS):
        try:
            target.mkdir()
            shutil.copyfile(root / CURRENT, target / CURRENT)
            name = current_generation(target)
            (target / name).mkdir()
            for file in (SNAPSHOT_MANIFEST, INDEX_FILE):
                shutil.copyfile(root / name / file, target / name / file)
            verify_current_snapshot(target)
        except (FileNotFoundError, SnapshotError):  # replaced by a newer one, or none exists
            shutil.rmtree(target)
        else:
            return
    _log.warning("%s: no complete index generation; the backup has none", root)


def write_backup(data: Path, target: Path, checkpoint: Checkpoint) -> BackupManifest:
    """Write a backup of a data directory, which a server may be using; durable at return.

    Args:
        data: the data directory; its collections are in the backup, too.
        target: the folder to create, or the file where the name ends in ".tar".
        checkpoint: named in the manifest if it made the vectors.

    Raises:
        BackupError: `target` exists or lies in the data directory, something could not be
            written, or the data is damaged; no backup is left then.
        StoreError: there is no data directory, or its store cannot be read or has changed since
            it was closed.
    """
    if target.exists():
        raise BackupError(f"{target}: exists already; a backup never replaces anything")
    if target.absolute().is_relative_to(data.absolute()):
        raise BackupError(f"{target}: lies in the data directory and would be lost with it")
    check_collection(data)
    collections = stored_collections(data)
    for name in set(collection_names(data)).difference(collections):
        folder = collection_path(data, name)
        _log.warning("%s: is no collection, having no %s: not in the backup", folder, STORE_FILE)
    for directory in _with_collections(data):
        settle(directory)
        verify_digest(directory / STORE_FILE)
    unfinished = target.with_name(f".{target.name}.unfinished")
    with _cleared_on_failure(unfinished, target):
        _require_space(data, target.parent)
        unfinished.mkdir()
        copy_data_directory(data, unfinished)
        manifest = _describe(unfinished, checkpoint)
        (unfinished / MANIFEST_FILE).write_bytes(format_manifest(manifest))
        sync_tree(unfinished)
        _verify_files(unfinished, _read_manifest(unfinished))
        finished = target.with_name(f".{target.name}.finished")
        if target.suffix == ARCHIVE_ENDING:
            _pack(unfinished, manifest, finished)
            shutil.rmtree(unfinished)
        else:
            unfinished.replace(finished)
        replace_durably(finished, target)
    return manifest


def restore_backup(source: Path, data: Path, checkpoint: Checkpoint) -> BackupManifest:
    """Restore a backup into a data directory that is missing or empty; durable at return.

    Its files are copied and compared with their checksums before any of them counts. After a kill
    the next opening finds an empty directory or the restored one.

    Raises:
        BackupError: the backup is missing, damaged or of another checkpoint, or could not be
            written.
        DataDirectoryInUseError: another process has the directory open for writing.
        StoreError: the directory is not empty, or cannot be written.
    """
    _require_there(source)
    manifest = _read_manifest(source) if source.is_dir() else _read_archived_manifest(source)
    _require_checkpoint(source, manifest, checkpoint)
    with locked(data):
        _require_empty(data)
        arriving = data / ARRIVING
        with _cleared_on_failure(arriving):
            _require_room(sum(file.size for file in manifest.files.values()), data)
            arriving.mkdir()
            _copy_backup(source, manifest, arriving)
            _verify_files(arriving, manifest)
        swap_in(data)
    return manifest


def _require_there(source: Path) -> None:
    if not source.exists():
        raise BackupError(f"{source}: there is no such backup")


def _describe(folder: Path, checkpoint: Checkpoint) -> BackupManifest:
    store = folder / STORE_FILE
    with translated_errors(store), closing(sqlite3.connect(store)) as connection:
        meta = connection.execute("SELECT fingerprint, dimension, sequence FROM meta").fetchone()
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    if meta is None:
        raise BackupError(f"{store}: does not name the checkpoint that made it")
    base = _base(folder, str(meta[0]))
    return BackupManifest(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        checkpoint=checkpoint.name if checkpoint.fingerprint == base else "",
        base=base,
        fingerprint=str(meta[0]),
        dimension=int(meta[1]),
        sequence=int(meta[2]),
        documents=int(documents),
        files=_describe_files(folder),
    )


def _base(folder: Path, fingerprint: str) -> str:
    """Return the fingerprint of the checkpoint, which differs where there is an adapter."""
    path = folder / ADAPTER_FILE
    fingerprint, _ = split_fingerprint(fingerprint)
    if not path.exists():
        return fingerprint
    try:
        adapter = parse_adapter(path.read_bytes(), ADAPTER_FILE)
    except AdapterError as error:
        raise BackupError(f"damaged data is not backed up: {error}") from error
    if adapter.fingerprint != fingerprint:
        raise BackupError(f"{ADAPTER_FILE} is not the one that the stored vectors were made with")
    return adapter.base


def _require_checkpoint(source: Path, manifest: BackupManifest, checkpoint: Checkpoint) -> None:
    if manifest.base != checkpoint.fingerprint:
        made_with = f"{manifest.checkpoint or 'another'} ({manifest.base[:12]})"
        raise BackupError(
            f"{source}: its vectors were made with checkpoint {made_with}, not with "
            f"{checkpoint.name} ({checkpoint.fingerprint[:12]}): name that one with --checkpoint"
        )


def _require_empty(data: Path) -> None:
    others = [path.name for path in data.iterdir() if path.name not in (LOCK_FILE, ARRIVING)]
    if others:
        raise StoreError(
            f"{data}: is not empty (it has {min(others)}): restore into a new directory"
        )


def _copy_backup(source: Path, manifest: BackupManifest, folder: Path) -> None:
    if not source.is_dir():
        _unpack(source, manifest, folder)
        return
    for name in manifest.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _create_file(folder / name, (source / name).stat().st_mode)
        shutil.copyfile(source / name, folder / name)


def _with_collections(data: Path) -> list[Path]:
    return [data, *(collection_path(data, name) for name in stored_collections(data))]


def _require_space(data: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    stores = [
        file for directory in _with_collections(data) for file in directory.glob(f"{STORE_FILE}*")
    ]
    _require_room(sum(file.stat().st_size for file in stores), target)


def _require_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupError(f"{folder}: {needed} bytes are needed and {free} are free")


@contextmanager
def _cleared_on_failure(*paths: Path) -> Iterator[None]:
    """Clear these places before a block that writes to them, and again if it fails."""
    hidden = [paths[0], *(path.with_name(f".{path.name}.finished") for path in paths[1:])]
    _remove(hidden)
    try:
        yield
    except OSError as error:
        _remove(hidden)
        raise BackupError(f"{paths[-1]}: cannot be written: {error}") from error
    except BaseException:
        _remove(hidden)
        raise


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _describe_files(folder: Path) -> dict[str, BackupFile]:
    """Return every file in a folder except the manifest, by its name relative to the folder.

    Raises:
        OSError: one cannot be read.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST_FILE:
            found[name] = BackupFile(path.stat().st_size, file_digest(path))
    return found


def format_manifest(manifest: BackupManifest) -> bytes:
    """Return the content of the manifest file, which includes a digest of itself."""
    content = {"format": FORMAT, **asdict(manifest)}
    content["sha256"] = _digest(content)
    return (json.dumps(content, indent=2) + "\n").encode()


def _parse_manifest(data: bytes, where: str) -> BackupManifest:
    """Parse the output of `format_manifest`.

    Raises:
        BackupError: it is damaged, of another format or not a manifest; `where` names it.
    """
    try:
        content: dict[str, Any] = json.loads(data)
        if content["format"] != FORMAT:
            raise BackupError(
                f"{where}: has format {content['format']!r}; this version of Longmatch reads "
                f"format {FORMAT}"
            )
        if content.pop("sha256") != _digest(content):
            raise BackupError(f"{where}: was changed or is damaged")
        del content["format"]
        files = {str(name): BackupFile(**fields) for name, fields in content.pop("files").items()}
        manifest = BackupManifest(files=files, **content)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BackupError(f"{where}: is not the manifest of a backup: {error!r}") from error
    for name in manifest.files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BackupError(f"{where}: names a file outside the backup, {name!r}")
    return manifest


def _read_manifest(folder: Path) -> BackupManifest:
    """Read the manifest of a backup that is a folder.

    Raises:
        BackupError: it is missing, damaged or of another format.
    """
    path = folder / MANIFEST_FILE
    try:
        return _parse_manifest(path.read_bytes(), str(path))
    except OSError as error:
        raise BackupError(f"{folder}: is not a complete backup: {error}") from error


def _verify_files(folder: Path, manifest: BackupManifest) -> None:
    """Compare every file of a folder with the manifest.

    Raises:
        BackupError: one is missing or changed; the message names it.
    """
    for name, expected in manifest.files.items():
        path = folder / name
        try:
            found = BackupFile(path.stat().st_size, file_digest(path))
        except OSError as error:
            raise BackupError(f"{path}: cannot be read: {error}") from error
        if found != expected:
            raise BackupError(f"{path}: is damaged: it differs from {MANIFEST_FILE}")


def _digest(content: Mapping[str, Any]) -> str:
    canonical = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()


def _pack(folder: Path, manifest: BackupManifest, path: Path) -> None:
    """Pack a backup folder into one file and verify the file.

    Raises:
        BackupError: the file does not hold what was written.
        OSError: it cannot be written.
    """
    with tarfile.open(path, "w") as archive:
        for name in (MANIFEST_FILE, *manifest.files):
            archive.add(folder / name, name)
    _verify_archive(path)


def _verify_archive(path: Path) -> None:
    """Read an archive whole and compare it with its manifest.

    Raises:
        BackupError: it is incomplete or damaged.
    """
    with _open_archive(path) as archive:
        manifest = _manifest(path, archive)
        for name, expected in manifest.files.items():
            with _member(path, archive, name) as file:
                found = BackupFile(archive.getmember(name).size, _sha256(file))
            if found != expected:
                raise BackupError(f"{path}: {name} is damaged: it differs from {MANIFEST_FILE}")


def _read_archived_manifest(path: Path) -> BackupManifest:
    """Read the manifest of an archive.

    Raises:
        BackupError: it is missing or damaged, or the file is not an archive.
    """
    with _open_archive(path) as archive:
        return _manifest(path, archive)


def _unpack(path: Path, manifest: BackupManifest, folder: Path) -> None:
    """Extract the files that the manifest of an archive names into a folder, and no others.

    Raises:
        BackupError: one is missing.
        OSError: one cannot be written.
    """
    with _open_archive(path) as archive:
        for name in manifest.files:
            with _member(path, archive, name) as file:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                _create_file(folder / name, archive.getmember(name).mode)
                with (folder / name).open("wb") as copy:
                    shutil.copyfileobj(file, copy, _BUFFER)


def _create_file(path: Path, mode: int) -> None:
    """Create an empty file that no more may read than its source, before anything is in it.

    Raises:
        OSError: it cannot be created, or exists.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(mode) | _OWN))


def _manifest(path: Path, archive: tarfile.TarFile) -> BackupManifest:
    with _member(path, archive, MANIFEST_FILE) as file:
        return _parse_manifest(file.read(_LARGEST_MANIFEST), f"{path}: {MANIFEST_FILE}")


@contextmanager
def _open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{path}: is not a complete backup: {error}") from error


def _member(path: Path, archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:  # missing, or not a regular file
        raise BackupError(f"{path}: is not a complete backup: {name} is missing")
    return file


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_BUFFER):
        digest.update(chunk)
    return digest.hexdigest()

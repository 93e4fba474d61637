"""Backups of a data directory: made while a server writes to it, checked, and restored.

A backup is a folder, or a tar file of one, not compressed: first `manifest.json`, which has the
SHA-256 of each file, then the files: the truth and the settings. What follows from them is made
again when the restored directory is opened. A backup gets its name once it is complete and has
been read back; before, it is a hidden folder next to that name, which the next attempt deletes.
"""

import hashlib
import hmac
import json
import logging
import re
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from encoder.atomic_files import replace_durably
from encoder.checkpoint import Checkpoint, split_fingerprint
from index.directory.collections import (
    NAME_PATTERN,
    check_collection,
    collection_names,
    collection_path,
    stored_collections,
)
from index.directory.data_directory import (
    ARRIVING,
    DAMAGED_FILE,
    FITTED,
    STORE_FILE,
    locked,
    settle,
    swap_in,
    sync_tree,
)
from index.errors import BackupError, StoreError
from index.sqlite.connections import create_private, open_reader, translated_errors
from index.store.checksums import find_damage
from index.store.document_store import DocumentStore
from index.store.schema import COLLECTIONS_DIRECTORY, DEFAULT_COLLECTION, LOCK_FILE

_ATTEMPTS = 5  # to copy what others may replace in the meantime
STATE_FILE = "state.sqlite3"  # of the service
# A restored keys.json would accept keys that were revoked, or that a stranger made.
_NAME = re.compile(
    rf"({COLLECTIONS_DIRECTORY}/(?!{DEFAULT_COLLECTION}/){NAME_PATTERN.strip('^$')}/)?"
    rf"({'|'.join(map(re.escape, (STORE_FILE, *FITTED, STATE_FILE, DAMAGED_FILE)))}"
    r"|uploads/[A-Za-z0-9_-]+\.ndjson)"
)

_log = logging.getLogger(__name__)


FORMAT = 1
ARCHIVE_ENDING = ".tar"
_LARGEST_MANIFEST = 16 * 2**20
_BUFFER = 2**20
MANIFEST_FILE = "manifest.json"
SIGNATURE = "hmac_sha256"
_SHORTEST_KEY = 16  # bytes


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
        sequence: of the store: the backup holds the changes up to this one.
        documents: their number, without those of its collections.
        files: by name relative to the backup, with "/".
    """

    created: str
    checkpoint: str
    base: str
    sequence: int
    documents: int
    files: Mapping[str, BackupFile]

    @property
    def collections(self) -> list[str]:
        """Names of the collections besides the data directory itself, in order."""
        parts = (PurePosixPath(name).parts for name in self.files)
        return sorted({part[1] for part in parts if part[0] == "collections"})


def copy_data_directory(data: Path, target: Path) -> None:
    """Copy the truth and the settings of a data directory into a folder, as of one moment.

    Its collections are copied after it, each as it is at one moment.

    Raises:
        BackupError: the copy of the store is damaged, or what belongs together was replaced again
            and again.
        OSError: something cannot be read or written.
        StoreError: the store cannot be read.
    """
    _copy_fitted(data, target)
    state = data / STATE_FILE
    if state.exists():
        create_private(target / STATE_FILE, state.stat().st_mode)
        copy_database(state, target / STATE_FILE)
    for path in (data / DAMAGED_FILE, *data.glob("uploads/*")):
        name = path.relative_to(data).as_posix()
        if path.is_file() and _NAME.fullmatch(name):
            (target / name).parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # the upload of a job that has ended
                create_private(target / name, path.stat().st_mode)
                shutil.copyfile(path, target / name)
    for collection in stored_collections(data):
        copy = collection_path(target, collection)
        copy.mkdir(parents=True)
        copy_data_directory(collection_path(data, collection), copy)


def _copy_fitted(data: Path, target: Path) -> None:
    """Copy the store, and what was fitted to its vectors, as they belong together."""
    copied = None  # which file the copied store is of
    for _ in range(_ATTEMPTS):
        before = _versions(data)
        for name in FITTED:
            (target / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # an optional file
                shutil.copyfile(data / name, target / name)
        if copied != before[STORE_FILE]:
            create_private(target / STORE_FILE)
            copy_database(data / STORE_FILE, target / STORE_FILE)
            copied = before[STORE_FILE]
        if _versions(data) == before:
            return
    names = ", ".join(FITTED)
    raise BackupError(
        f"{data}: {names} or the store changed {_ATTEMPTS} times while it was copied: try again"
    )


def _versions(data: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes when a file is replaced; of the store not what changes by writing."""
    found: dict[str, tuple[int, ...]] = {}
    for name in (*FITTED, STORE_FILE):
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
    _check(target, source)


def _check(path: Path, source: Path) -> None:
    """Check the copy of a database from `source`, and every row of a store.

    Raises:
        BackupError: it is damaged.
        StoreError: it cannot be read.
    """
    names: list[str] = []
    with translated_errors(path), closing(sqlite3.connect(path)) as copy:
        problems = [row[0] for row in copy.execute("PRAGMA integrity_check(5)")]
        if problems == ["ok"] and path.name == STORE_FILE:
            damage = find_damage(copy)
            names = [*damage.documents.values(), *damage.encodings.values()]
    if names:
        problems = [f"document {names[0]!r}, one of {len(names)}"]
    if problems != ["ok"]:
        raise BackupError(f"{source}: {path.name} is damaged ({problems[0]}): see longmatch doctor")


def read_signing_key(path: Path) -> bytes:
    """Read the key of an operator that signs backups: the content of a file.

    Raises:
        BackupError: it cannot be read, or is too short.
    """
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise BackupError(f"{path}: cannot be read: {error.strerror}") from error
    if len(key) < _SHORTEST_KEY:
        raise BackupError(f"{path}: a key has at least {_SHORTEST_KEY} bytes, not {len(key)}")
    return key


def write_backup(
    data: Path, target: Path, checkpoint: Checkpoint, *, key: bytes | None = None
) -> BackupManifest:
    """Write a backup of a data directory, which a server may be using; durable at return.

    Args:
        data: the data directory; its collections are in the backup, too.
        target: the folder to create, or the file where the name ends in ".tar".
        checkpoint: named in the manifest if it made the vectors.
        key: signs the manifest, and so every file, by HMAC with SHA-256.

    Raises:
        BackupError: `target` exists or lies in the data directory, something could not be
            written, or the data is damaged; no backup is left then.
        StoreError: there is no data directory, or its store cannot be read.
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
    directories = [data, *(collection_path(data, name) for name in collections)]
    for directory in directories:
        settle(directory)
    stores = (file for directory in directories for file in directory.glob(f"{STORE_FILE}*"))
    unfinished = target.with_name(f".{target.name}.unfinished")
    finished = target.with_name(f".{target.name}.finished")
    with _cleared_on_failure(unfinished, finished):
        target.parent.mkdir(parents=True, exist_ok=True)
        _require_room(sum(file.stat().st_size for file in stores), target.parent)
        unfinished.mkdir()
        copy_data_directory(data, unfinished)
        manifest = _describe(unfinished, checkpoint)
        (unfinished / MANIFEST_FILE).write_bytes(format_manifest(manifest, key))
        sync_tree(unfinished)
        if target.suffix == ARCHIVE_ENDING:
            with tarfile.open(finished, "w") as archive:
                for name in (MANIFEST_FILE, *manifest.files):
                    archive.add(unfinished / name, name)
            shutil.rmtree(unfinished)
        else:
            unfinished.replace(finished)
        _read_files(finished, _read_manifest(finished))
        replace_durably(finished, target)
    return manifest


def restore_backup(
    source: Path, data: Path, checkpoint: Checkpoint, *, key: bytes | None = None
) -> BackupManifest:
    """Restore a backup into a data directory that is missing or empty; durable at return.

    Its files are copied and compared with their checksums before any of them counts. After a kill
    the next opening finds an empty directory or the restored one.

    Args:
        key: that must have signed the backup; None takes any, signed or not.

    Raises:
        BackupError: the backup is missing, damaged, of another checkpoint, not signed with `key`
            or has what `write_backup` never writes, or it could not be written.
        DataDirectoryInUseError: another process has the directory open for writing.
        StoreError: the directory is not empty, or cannot be written.
    """
    if not source.exists():
        raise BackupError(f"{source}: there is no such backup")
    manifest = _read_manifest(source, key)
    if manifest.base != checkpoint.fingerprint:
        made_with = f"{manifest.checkpoint or 'another'} ({manifest.base[:12]})"
        raise BackupError(
            f"{source}: its vectors were made with checkpoint {made_with}, not with "
            f"{checkpoint.name} ({checkpoint.fingerprint[:12]}): name that one with --encoder"
        )
    with locked(data):
        others = {path.name for path in data.iterdir()} - {LOCK_FILE, ARRIVING}
        if others:
            raise StoreError(
                f"{data}: is not empty (it has {min(others)}): restore into a new directory"
            )
        arriving = data / ARRIVING
        with _cleared_on_failure(arriving):
            _require_room(sum(file.size for file in manifest.files.values()), data)
            arriving.mkdir()
            _read_files(source, manifest, arriving)
            for store in arriving.rglob(STORE_FILE):  # what follows it is made on opening
                DocumentStore(store).close()
        swap_in(data)
    return manifest


def _describe(folder: Path, checkpoint: Checkpoint) -> BackupManifest:
    store = folder / STORE_FILE
    with translated_errors(store), closing(sqlite3.connect(store)) as connection:
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        meta = connection.execute("SELECT fingerprint, sequence FROM meta").fetchone()
    if meta is None:
        raise BackupError(f"{store}: does not name the checkpoint that made it")
    fingerprint, sequence = meta
    base, _ = split_fingerprint(str(fingerprint))
    return BackupManifest(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        checkpoint=checkpoint.name if checkpoint.fingerprint == base else "",
        base=base,
        sequence=sequence,
        documents=documents,
        files={name: _copied(file) for name, _, file in _entries(folder)},
    )


def _require_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupError(f"{folder}: {needed} bytes are needed and {free} are free")


@contextmanager
def _cleared_on_failure(*paths: Path) -> Iterator[None]:
    """Clear these places before a block that writes to the last of them, and again if it fails."""
    _remove(paths)
    try:
        yield
    except BaseException as error:
        _remove(paths)
        if isinstance(error, OSError):
            raise BackupError(f"{paths[-1]}: cannot be written: {error}") from error
        raise


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def format_manifest(manifest: BackupManifest, key: bytes | None = None) -> bytes:
    """Return the content of the manifest file, with its signature by a key and its digest."""
    content = {"format": FORMAT, **asdict(manifest)}
    if key is not None:
        content[SIGNATURE] = hmac.digest(key, _canonical(content), "sha256").hex()
    content["sha256"] = _digest(content)
    return (json.dumps(content, indent=2) + "\n").encode()


def _parse_manifest(data: bytes, where: str, key: bytes | None) -> BackupManifest:
    """Parse the output of `format_manifest`, which `key` must have signed, if given.

    Raises:
        BackupError: it is damaged, of another format, not a manifest or not signed with the key;
            `where` names it.
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
        signature = content.pop(SIGNATURE, None)
        if key is not None:
            if signature is None:
                raise BackupError(f"{where}: is not signed")
            signed = hmac.digest(key, _canonical(content), "sha256").hex()
            if not hmac.compare_digest(signed, str(signature)):
                raise BackupError(f"{where}: was signed with another key")
        del content["format"]
        files = {str(name): BackupFile(**fields) for name, fields in content.pop("files").items()}
        manifest = BackupManifest(files=files, **content)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BackupError(f"{where}: is not the manifest of a backup: {error!r}") from error
    for name in manifest.files:
        if not _NAME.fullmatch(name):
            raise BackupError(f"{where}: names {name!r}, which no snapshot has")
    return manifest


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    signed = {name: value for name, value in content.items() if name != "sha256"}
    return json.dumps(signed, sort_keys=True).encode()


def _read_manifest(source: Path, key: bytes | None = None) -> BackupManifest:
    """Read the manifest of a backup, which `key` must have signed, if given.

    Raises:
        BackupError: it is missing, damaged, of another format or not signed with the key.
    """
    with _read(source) as entries:
        name, _, file = next(entries, (None, 0, None))
        if file is None or name != MANIFEST_FILE:
            raise BackupError(f"{source}: is not a complete backup: {MANIFEST_FILE} is missing")
        return _parse_manifest(file.read(_LARGEST_MANIFEST), f"{source}: {MANIFEST_FILE}", key)


def _read_files(source: Path, manifest: BackupManifest, folder: Path | None = None) -> None:
    """Compare every file of a backup with its manifest, and copy it into a folder, if one is given.

    Raises:
        BackupError: one is missing, changed or not in the manifest; the message names it.
        OSError: one cannot be written.
    """
    missing = {MANIFEST_FILE, *manifest.files}
    with _read(source) as entries:
        for name, mode, file in entries:
            if name not in missing:
                raise BackupError(f"{source}: holds {name!r}, which no snapshot has")
            missing.remove(name)
            if name == MANIFEST_FILE:
                continue
            if folder is None:
                found = _copied(file)
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                create_private(folder / name, mode)
                with (folder / name).open("wb") as copy:
                    found = _copied(file, copy)
            if found != manifest.files[name]:
                raise BackupError(f"{source}: {name} is damaged: it differs from {MANIFEST_FILE}")
    if missing:
        raise BackupError(f"{source}: is not a complete backup: {min(missing)} is missing")


def _entries(source: Path) -> Generator[tuple[str, int, IO[bytes]], None, None]:
    """Yield name, mode and content of each file of a folder or an archive, the manifest first.

    Raises:
        BackupError: there is an entry that is no file.
    """
    if source.is_dir():
        paths = (path for path in source.rglob("*") if path.is_symlink() or not path.is_dir())
        for path in sorted(paths, key=lambda path: (path.name != MANIFEST_FILE, path)):
            name, mode = path.relative_to(source).as_posix(), path.lstat().st_mode
            if not stat.S_ISREG(mode):
                raise BackupError(f"{source}: holds {name!r}, which is no file")
            with path.open("rb") as file:
                yield name, mode, file
        return
    with tarfile.open(source, "r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise BackupError(f"{source}: holds {member.name!r}, which is no file")
            yield member.name, member.mode, content


@contextmanager
def _read(source: Path) -> Iterator[Iterator[tuple[str, int, IO[bytes]]]]:
    try:
        with closing(_entries(source)) as entries:
            yield entries
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{source}: is not a complete backup: {error}") from error


def _copied(file: IO[bytes], copy: IO[bytes] | None = None) -> BackupFile:
    """Read a file to its end, and write it to another one, if one is given."""
    size, digest = 0, hashlib.sha256()
    while chunk := file.read(_BUFFER):
        size += len(chunk)
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return BackupFile(size, digest.hexdigest())

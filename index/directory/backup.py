"""Backups of a data directory: made while a server writes to it, checked, and restored.

A backup is a folder with the truth and the settings, and with `SHA256SUMS`, the checksums of these
files as `sha256sum` writes them. What follows from them is made again when the restored directory
is opened. A backup gets its name once it is complete; before, it is a hidden folder next to that
name, which the next attempt deletes.
"""

import hashlib
import logging
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
from index.store.schema import (
    COLLECTIONS_DIRECTORY,
    DEFAULT_COLLECTION,
    LOCK_FILE,
    read_space,
)

STATE_FILE = "state.sqlite3"  # of the service
CHECKSUMS_FILE = "SHA256SUMS"
# A restored keys.json would accept keys that were revoked, or that a stranger made.
_NAME = (
    rf"(?:{COLLECTIONS_DIRECTORY}/(?!{DEFAULT_COLLECTION}/){NAME_PATTERN.strip('^$')}/)?"
    rf"(?:{'|'.join(map(re.escape, (STORE_FILE, *FITTED, STATE_FILE, DAMAGED_FILE)))}"
    r"|uploads/[A-Za-z0-9_-]+\.ndjson)"
)
_CHECKSUM = re.compile(rf"([0-9a-f]{{64}})  ({_NAME})")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds.

    Attributes:
        documents: their number, without those of its collections.
        collections: names of the collections besides the data directory itself, in order.
        files: how many there are.
        size: of these, in bytes.
    """

    documents: int
    collections: tuple[str, ...]
    files: int
    size: int


def copy_data_directory(data: Path, target: Path) -> None:
    """Copy the truth and the settings of a data directory into a folder.

    The store is copied as of one moment, and so is each of the collections after it. A calibration
    names the rule that it was measured with: one that was measured later does not count.

    Raises:
        BackupError: the copy of the store is damaged, or the store was replaced meanwhile.
        OSError: something cannot be read or written.
        StoreError: the store cannot be read.
    """
    store = data / STORE_FILE
    file = store.stat().st_ino
    for name in FITTED:
        with suppress(FileNotFoundError):  # an optional file
            shutil.copyfile(data / name, target / name)
    create_private(target / STORE_FILE)
    copy_database(store, target / STORE_FILE)
    if store.stat().st_ino != file:
        raise BackupError(f"{data}: its content was replaced meanwhile: try again")
    state = data / STATE_FILE
    if state.exists():
        create_private(target / STATE_FILE, state.stat().st_mode)
        copy_database(state, target / STATE_FILE)
    for path in (data / DAMAGED_FILE, *data.glob("uploads/*")):
        name = path.relative_to(data).as_posix()
        if path.is_file() and re.fullmatch(_NAME, name):
            with suppress(FileNotFoundError):  # the upload of a job that has ended
                _copy_file(data, target, name)
    for collection in stored_collections(data):
        copy = collection_path(target, collection)
        copy.mkdir(parents=True)
        copy_data_directory(collection_path(data, collection), copy)


def _copy_file(folder: Path, target: Path, name: str) -> None:
    """Copy a file with its rights, into a folder that is created if it is missing."""
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    create_private(target / name, (folder / name).stat().st_mode)
    shutil.copyfile(folder / name, target / name)


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


def write_backup(data: Path, target: Path) -> Backup:
    """Write a backup of a data directory, which a server may be using; durable at return.

    Args:
        data: the data directory; its collections are in the backup, too.
        target: the folder to create.

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
    with _cleared_on_failure(unfinished):
        target.parent.mkdir(parents=True, exist_ok=True)
        _require_room(sum(file.stat().st_size for file in stores), target.parent)
        unfinished.mkdir()
        copy_data_directory(data, unfinished)
        backup = _describe(unfinished)
        lines = (f"{_sha256(unfinished / name)}  {name}\n" for name in sorted(_names(unfinished)))
        (unfinished / CHECKSUMS_FILE).write_text("".join(lines))
        sync_tree(unfinished)
        replace_durably(unfinished, target)
    return backup


def restore_backup(source: Path, data: Path, checkpoint: Checkpoint) -> Backup:
    """Restore a backup into a data directory that is missing or empty; durable at return.

    Its files are copied and compared with their checksums before any of them counts. After a kill
    the next opening finds an empty directory or the restored one.

    Raises:
        BackupError: the backup is missing, damaged, of another checkpoint or has what
            `write_backup` never writes, or it could not be written.
        DataDirectoryInUseError: another process has the directory open for writing.
        StoreError: the directory is not empty, or cannot be written.
    """
    checksums = _read_checksums(source)
    with locked(data):
        others = {path.name for path in data.iterdir()} - {LOCK_FILE, ARRIVING}
        if others:
            raise StoreError(
                f"{data}: is not empty (it has {min(others)}): restore into a new directory"
            )
        arriving = data / ARRIVING
        with _cleared_on_failure(arriving):
            _require_room(sum((source / name).stat().st_size for name in checksums), data)
            for name, checksum in checksums.items():
                _copy_file(source, arriving, name)
                if _sha256(arriving / name) != checksum:
                    raise BackupError(f"{source}: {name} is damaged: see {CHECKSUMS_FILE}")
            backup = _describe(arriving)
            made_with, _ = split_fingerprint(read_space(arriving / STORE_FILE).fingerprint)
            if made_with != checkpoint.fingerprint:
                raise BackupError(
                    f"{source}: its vectors were made with the encoder {made_with[:12]}, not with "
                    f"{checkpoint.name} ({checkpoint.fingerprint[:12]}): name it with --encoder"
                )
            for store in arriving.rglob(STORE_FILE):  # what follows it is made on opening
                DocumentStore(store).close()
        swap_in(data)
    return backup


def _read_checksums(source: Path) -> dict[str, str]:
    """Read the SHA-256 of each file of a backup, by name.

    Raises:
        BackupError: it is missing, or the files are not those that are named.
    """
    if not source.exists():
        raise BackupError(f"{source}: there is no such backup")
    path = source / CHECKSUMS_FILE
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise BackupError(f"{source}: is not a complete backup: {path}: {error}") from error
    checksums: dict[str, str] = {}
    for line in lines:
        found = _CHECKSUM.fullmatch(line)
        if found is None:
            raise BackupError(f"{path}: has {line!r}, which no snapshot has")
        checksums[found[2]] = found[1]
    present = _names(source) - {CHECKSUMS_FILE}
    for name in sorted({STORE_FILE, *checksums} - present):
        raise BackupError(f"{source}: is not a complete backup: {name} is missing")
    for name in sorted(present - checksums.keys()):
        raise BackupError(f"{source}: holds {name!r}, which {CHECKSUMS_FILE} does not name")
    return checksums


def _names(folder: Path) -> set[str]:
    """Return the names of the files in a folder, at any depth, with `/`."""
    files = (path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return {path.relative_to(folder).as_posix() for path in files}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(folder: Path) -> Backup:
    """Describe a backup by its files, before there are others."""
    sizes = [(folder / name).stat().st_size for name in _names(folder)]
    store = folder / STORE_FILE
    with translated_errors(store), closing(sqlite3.connect(store)) as connection:
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    return Backup(documents, tuple(stored_collections(folder)), len(sizes), sum(sizes))


def _require_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupError(f"{folder}: {needed} bytes are needed and {free} are free")


@contextmanager
def _cleared_on_failure(folder: Path) -> Iterator[None]:
    """Delete a folder before a block that writes it, and again if that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise BackupError(f"{folder}: cannot be written: {error}") from error
        raise

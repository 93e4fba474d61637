"""Backups of a data directory: made while a server writes to it, checked, and restored.

A backup is a folder with the truth and the settings, and with `SHA256SUMS`, the checksums of these
files as `sha256sum` writes them. What follows from them is made again when the restored directory
is opened. A backup gets its name once it is complete; before, it is a hidden folder next to that
name, which the next attempt deletes.
"""

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from encoder.atomic_files import replace_durably
from index.directory.collections import check_collection, collection_names, collection_path
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
from index.store.checksums import file_problems, find_damage
from index.store.document_store import DocumentStore
from index.store.schema import LOCK_FILE

STATE_FILE = "state.sqlite3"  # of the service
CHECKSUMS_FILE = "SHA256SUMS"
_DATABASES = (STORE_FILE, STATE_FILE)
# A restored keys.json would accept keys that were revoked, or that a stranger made.
_CONTENT = (*FITTED, *_DATABASES, DAMAGED_FILE, "uploads/*.ndjson")


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


def _directories(data: Path) -> list[Path]:
    """Return a data directory and those of its collections."""
    return [data, *(collection_path(data, name) for name in collection_names(data))]


def _content(data: Path) -> list[str]:
    """Return the names of the files that a backup has, with `/`, in the order of the copy."""
    found = (
        path
        for directory in _directories(data)
        for pattern in _CONTENT
        for path in sorted(directory.glob(pattern))
    )
    return [path.relative_to(data).as_posix() for path in found if path.is_file()]


def _copy_truth(data: Path, target: Path) -> None:
    """Copy the truth and the settings of a data directory and its collections into a folder.

    Each store is copied as of one moment. A calibration names the rule that it was measured with:
    one that was measured later does not count.

    Raises:
        BackupError: the copy of a store is damaged, or a store was replaced meanwhile.
        OSError: something cannot be read or written.
        StoreError: a store cannot be read.
    """
    files = {path: path.stat().st_ino for path in _stores(data)}
    for name in _content(data):
        copy = _make_private(target / name)
        if copy.name in _DATABASES:
            copy_database(data / name, copy)
            continue
        try:
            shutil.copyfile(data / name, copy)
        except FileNotFoundError:  # the upload of a job that has ended
            copy.unlink()
    for path, file in files.items():
        if path.stat().st_ino != file:
            raise BackupError(f"{path.parent}: its content was replaced meanwhile: try again")


def _stores(data: Path) -> list[Path]:
    return [directory / STORE_FILE for directory in _directories(data)]


def _make_private(path: Path) -> Path:
    """Make an empty file for its owner alone, in a folder that is created if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    create_private(path)
    return path


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
    with translated_errors(target), closing(sqlite3.connect(target)) as copy:
        problems = file_problems(copy)
        if not problems and target.name == STORE_FILE:
            damage = find_damage(copy)
            names = [*damage.documents.values(), *damage.encodings.values()]
            problems = [f"document {name!r}, one of {len(names)}" for name in names]
    if problems:
        raise BackupError(f"{source}: is damaged ({problems[0]}): see longmatch doctor")


def write_backup(data: Path, target: Path) -> Backup:
    """Write a backup of a data directory, which a server may be using; durable at return.

    Args:
        data: the data directory; its collections are in the backup, too.
        target: the folder to create.

    Raises:
        BackupError: `target` exists or lies in the data directory, something could not be
            written, or the data is damaged; no backup is left then.
        StoreError: there is no data directory, a collection has no store, or it cannot be read.
    """
    if target.exists():
        raise BackupError(f"{target}: exists already; a backup never replaces anything")
    if target.absolute().is_relative_to(data.absolute()):
        raise BackupError(f"{target}: lies in the data directory and would be lost with it")
    for directory in _directories(data):
        check_collection(directory)
        settle(directory)
    unfinished = target.with_name(f".{target.name}.unfinished")
    with _cleared_on_failure(unfinished):
        target.parent.mkdir(parents=True, exist_ok=True)
        _require_room(_stores(data), target.parent)
        unfinished.mkdir()
        _copy_truth(data, unfinished)
        backup = _describe(unfinished)
        lines = [f"{_sha256(unfinished / name)}  {name}\n" for name in _content(unfinished)]
        (unfinished / CHECKSUMS_FILE).write_text("".join(lines))
        sync_tree(unfinished)
        replace_durably(unfinished, target)
    return backup


def restore_backup(source: Path, data: Path) -> Backup:
    """Restore a backup into a data directory that is missing or empty; durable at return.

    Its files are copied and compared with their checksums before any of them counts. After a kill
    the next opening finds an empty directory or the restored one.

    Raises:
        BackupError: the backup is missing, damaged or has what `write_backup` never writes, or it
            could not be written.
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
            _require_room([source / name for name in checksums], data)
            for name, checksum in checksums.items():
                copy = _make_private(arriving / name)
                shutil.copyfile(source / name, copy)
                if _sha256(copy) != checksum:
                    raise BackupError(f"{source}: {name} is damaged: see {CHECKSUMS_FILE}")
            backup = _describe(arriving)
            for store in _stores(arriving):  # what follows it is made on opening
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
    try:
        lines = (source / CHECKSUMS_FILE).read_text(errors="replace").splitlines()
    except OSError as error:
        raise BackupError(f"{source}: is not a complete backup: {error}") from error
    found = (line.partition("  ") for line in lines)
    checksums = {name: checksum for checksum, _, name in found}
    content = set(_content(source))
    for name in sorted((content ^ checksums.keys()) | ({STORE_FILE} - content)):
        raise BackupError(
            f"{source}: is not a complete backup: {name!r} is missing, is not named in "
            f"{CHECKSUMS_FILE}, or is no file of a backup"
        )
    return checksums


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(folder: Path) -> Backup:
    """Describe a backup by its files, before there are others."""
    sizes = [(folder / name).stat().st_size for name in _content(folder)]
    store = folder / STORE_FILE
    with translated_errors(store), closing(sqlite3.connect(store)) as connection:
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    return Backup(documents, tuple(collection_names(folder)), len(sizes), sum(sizes))


def _require_room(files: Sequence[Path], folder: Path) -> None:
    needed, free = sum(file.stat().st_size for file in files), shutil.disk_usage(folder).free
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

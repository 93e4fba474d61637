"""Copies the files of a data directory while a server may be writing to it."""

import logging
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from index.data_directory import LOCK_FILE, SNAPSHOTS_DIRECTORY, STORE_FILE
from index.errors import BackupError, SnapshotError
from index.snapshot import (
    CURRENT,
    INDEX_FILE,
    MANIFEST_FILE,
    current_generation,
    verify_current_snapshot,
)
from index.sqlite_connections import translated_errors

_SQLITE_MAGIC = b"SQLite format 3\x00"
_ATTEMPTS = 5  # to copy an index generation before a newer one takes its place
_PASSING = ("-wal", "-shm", "-journal", ".partial", ".new")  # endings of files that others hold

_log = logging.getLogger(__name__)


def copy_data_directory(data: Path, target: Path) -> None:
    """Copy a data directory into the folder `target`, as it is at one moment.

    The index generation comes first: the store's copy is then never behind it, and knows what it
    lacks. All else in the directory is copied too; hidden files and the lock are not.

    Raises:
        BackupError: the store's copy is not sound.
        OSError: something cannot be read or written.
        StoreError: the store cannot be read.
    """
    _copy_snapshot(data / SNAPSHOTS_DIRECTORY, target / SNAPSHOTS_DIRECTORY)
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or name.parts[0] in (LOCK_FILE, SNAPSHOTS_DIRECTORY, STORE_FILE):
            continue
        if path.is_file() and not path.name.endswith(_PASSING):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a file that comes and goes
                _copy(path, target / name)
    copy_database(data / STORE_FILE, target / STORE_FILE)


def copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite database that others may be writing to, and check the copy.

    It is copied within one read transaction, for which no writer waits.

    Raises:
        BackupError: the copy is damaged, so the source is.
        StoreError: the source cannot be read, or the copy not be written.
    """
    with translated_errors(source):
        uri = f"{source.absolute().as_uri()}?mode=ro"
        reading, writing = sqlite3.connect(uri, uri=True), sqlite3.connect(target)
        with closing(reading), closing(writing):
            reading.backup(writing)
        with closing(sqlite3.connect(target)) as copy:
            problems = [row[0] for row in copy.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise BackupError(
            f"{source}: is damaged ({problems[0]}), and no backup is made of it: "
            "longmatch doctor says more"
        )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        database = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    if database:
        copy_database(source, target)
    else:
        shutil.copyfile(source, target)


def _copy_snapshot(root: Path, target: Path) -> None:
    """Copy the current index generation; where there is none that is whole, copy none."""
    for _ in range(_ATTEMPTS):
        try:
            target.mkdir()
            shutil.copyfile(root / CURRENT, target / CURRENT)
            name = current_generation(target)
            (target / name).mkdir()
            for file in (MANIFEST_FILE, INDEX_FILE):
                shutil.copyfile(root / name / file, target / name / file)
            verify_current_snapshot(target)
        except (FileNotFoundError, SnapshotError):  # a newer one has taken its place, or none is
            shutil.rmtree(target)
        else:
            return
    _log.warning("%s: no index generation that is whole; the backup has none", root)

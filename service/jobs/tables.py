"""The tables of jobs and of kept answers, in a file of their own beside the document store."""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from encoder.durable_files import put_in_place
from index.errors import StoreError
from index.sqlite_connections import SQLiteConnections

SCHEMA_VERSION = 1
APPLICATION_ID = 0x4C4D4A42

# `number` is never given out twice (AUTOINCREMENT): jobs run in its order.
SCHEMA = f"""
CREATE TABLE meta (
    queue TEXT NOT NULL,
    served_seconds REAL NOT NULL
);
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    size INTEGER NOT NULL,
    digest BLOB NOT NULL,
    accepted INTEGER NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    line INTEGER NOT NULL DEFAULT 0,
    indexed INTEGER NOT NULL DEFAULT 0,
    unchanged INTEGER NOT NULL DEFAULT 0,
    truncated INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    detail TEXT,
    created TEXT NOT NULL,
    ended TEXT
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE TABLE line_errors (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    line INTEGER NOT NULL,
    pointer TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (job, line)
) WITHOUT ROWID;
CREATE TABLE answers (
    key TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    status INTEGER NOT NULL,
    location TEXT,
    body BLOB NOT NULL,
    served_seconds REAL NOT NULL
);
CREATE INDEX answers_by_age ON answers (served_seconds);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def open_tables(path: Path) -> SQLiteConnections:
    """Open the tables, and make them when there is no file.

    Raises:
        StoreError: the file cannot be made or is not one of ours.
    """
    _create_if_missing(path)
    connections = SQLiteConnections(path, read_only=False)
    try:
        _check_is_ours(connections, path)
    except StoreError:
        connections.close()
        raise
    return connections


def _create_if_missing(path: Path) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    try:
        if path.exists():
            return
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
            connection.execute("INSERT INTO meta VALUES (?, 0)", (uuid.uuid4().hex,))
            connection.commit()
        put_in_place(unfinished, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot be made: {error}") from error


def _check_is_ours(connections: SQLiteConnections, path: Path) -> None:
    with connections.reading() as connection:
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise StoreError(f"{path}: this is a database, but not one of Longmatch's jobs")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{path}: the jobs have format {version}; "
                f"this version of Longmatch reads format {SCHEMA_VERSION}"
            )

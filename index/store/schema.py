"""The tables of the store: how they are created, and how a file is recognised as a store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from encoder.checkpoint import VectorSpace
from index.alignment.spaces import SPACES_SCHEMA
from index.common_text.collection import COMMON_TEXT_SCHEMA
from index.errors import FingerprintMismatchError, StoreError
from index.sqlite.block_vectors import BLOCKS_SCHEMA
from index.sqlite.connections import (
    DATABASE_ERRORS,
    DatabaseFormat,
    open_reader,
    storage_error,
    utc_now,
)
from index.store.filters import METADATA_SCHEMA

# Vector ids are never assigned twice (AUTOINCREMENT), so a removed one stays removed.
# A checksum is of its row, see `index.store.checksums`.
# `text` is the last column: the others are then read without the pages that a long text fills.
# The change log: `removals`, the sequence of each vector, and `revisions`, of documents of which
# not the text has changed, but title, metadata or what is derived. `identity` is drawn, to know
# what follows another store.
STORE = DatabaseFormat(
    "documents",
    application_id=0x4C4D5348,
    version=6,
    schema=f"""
CREATE TABLE meta (
    fingerprint TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    created TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    log_start INTEGER NOT NULL,
    identity TEXT NOT NULL
);
CREATE TABLE documents (
    vector_id INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    content_hash BLOB NOT NULL,
    tokens INTEGER NOT NULL,
    tokens_read INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    blocks_left_out INTEGER NOT NULL,
    tokens_encoded INTEGER NOT NULL,
    payload_characters INTEGER NOT NULL,
    indexed_at TEXT NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE vectors (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX vectors_by_sequence ON vectors (sequence);
CREATE TABLE removals (
    vector_id INTEGER PRIMARY KEY,
    added INTEGER NOT NULL,
    sequence INTEGER NOT NULL
);
CREATE INDEX removals_by_sequence ON removals (sequence);
CREATE TABLE revisions (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    sequence INTEGER NOT NULL
);
CREATE INDEX revisions_by_sequence ON revisions (sequence);
{BLOCKS_SCHEMA};
{METADATA_SCHEMA};
{SPACES_SCHEMA};
{COMMON_TEXT_SCHEMA};
""",
    shrinks=True,
)
_INSERT_META = """
INSERT INTO meta VALUES (?, ?, ?, 0, 0, lower(hex(randomblob(16))))"""


def create_if_missing(path: Path, fingerprint: str, dimension: int) -> None:
    """Create an empty store if there is no file; after a kill there is none, not half of one.

    So an empty file is known to be a damaged store, not a new one.

    Raises:
        StoreError: it cannot be written, or there is the log of a store that is missing.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not path.exists():  # SQLite would replay it into the new store
        raise StoreError(f"{path}: the store is missing, but its log {log.name} is there")
    STORE.create_if_missing(path, _INSERT_META, (fingerprint, dimension, utc_now()))


def check_is_ours(
    connection: sqlite3.Connection,
    path: Path,
    fingerprint: str,
    dimension: int,
) -> None:
    """Check that the file is a store of this format and of this checkpoint.

    Raises:
        FingerprintMismatchError: the vectors in it are of another checkpoint.
        StoreError: it is not a store, of another format or of another dimension.
    """
    STORE.check(connection, path)
    found = connection.execute("SELECT fingerprint, dimension FROM meta").fetchone()
    if found is None:
        raise StoreError(f"{path}: the store does not name the checkpoint that made it")
    if found[0] != fingerprint:
        raise FingerprintMismatchError(found[0], fingerprint)
    if found[1] != dimension:
        raise StoreError(f"{path}: the vectors have dimension {found[1]}, not {dimension}")


def read_space(path: Path) -> VectorSpace:
    """Read which vectors a store holds, without opening it as a store.

    Raises:
        StoreError: it is missing, damaged, not a store or of another format.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no document store here")
    try:
        with closing(open_reader(path)) as connection:
            STORE.check(connection, path)
            fingerprint, dimension = connection.execute(
                "SELECT fingerprint, dimension FROM meta"
            ).fetchone()
    except (*DATABASE_ERRORS, TypeError) as error:
        raise (
            storage_error(path, error) or StoreError(f"{path}: cannot be read: {error}")
        ) from error
    return VectorSpace(str(fingerprint), int(dimension))

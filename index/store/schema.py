"""The tables of the store: how they are created, and how a file is recognised as a store."""

import secrets
from pathlib import Path

from encoder.checkpoint import VectorSpace
from index.alignment.spaces import SPACES_SCHEMA
from index.common_text.collection import COMMON_TEXT_SCHEMA
from index.errors import FingerprintMismatchError, StorageError, StoreError
from index.lexical.hashed_words import FREQUENCIES_SCHEMA
from index.optional_dependencies import require_extra
from index.sqlite.block_vectors import BLOCKS_SCHEMA
from index.sqlite.connections import DatabaseFormat, SQLiteConnections, utc_now
from index.store.database import Connections
from index.store.filters import METADATA_SCHEMA

# Vector ids are never assigned twice, so a removed one stays removed.
# A checksum is of its row, that of a vector also of the block vectors: `index.store.checksums`.
# `title_hash` and `title_head` are what texts that name the title are found by, see
# `index.lexical.terms`; where servers share the store they have an index.
# `text` is the last column: the others are then read without the pages that a long text fills.
# The change log: `removals`, the sequence of each vector, and `revisions`, of documents of which
# not the text has changed, but title, metadata or what is derived. `identity` is drawn, to know
# what follows another store.
STORE = DatabaseFormat(
    "documents",
    application_id=0x4C4D5348,
    version=11,
    schema=f"""
CREATE TABLE meta (
    fingerprint TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    created TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    log_start INTEGER NOT NULL,
    identity TEXT NOT NULL,
    last_vector_id INTEGER NOT NULL
);
CREATE TABLE documents (
    vector_id INTEGER PRIMARY KEY,
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
    title_hash INTEGER,
    title_head INTEGER,
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
{FREQUENCIES_SCHEMA};
""",
    mark="meta",
)
_SPACE = """
SELECT fingerprint, dimension FROM meta"""
COLLECTIONS_DIRECTORY = "collections"
DEFAULT_COLLECTION = "default"
LOCK_FILE = "lock"


def open_truth(
    path: Path, database: str | None, space: VectorSpace | None, *, read_only: bool
) -> tuple[Connections, VectorSpace]:
    """Open a store: the file at `path`, or the schema of its collection in a PostgreSQL.

    It is created if it is missing, unless `read_only`; without the space of its vectors it must
    exist. A kill leaves no half of it, so an empty file is known to be a damaged store.

    Returns:
        Its connections, and the space of its vectors.

    Raises:
        FingerprintMismatchError: the vectors in it are of another checkpoint.
        StoreError: it is missing or damaged, cannot be read or written, is not a store of this
            format or of another dimension, or there is the log of a file that is missing.
    """
    if space is None and database is None and not path.is_file():
        raise StoreError(f"{path}: there is no document store here")
    log = path.with_name(f"{path.name}-wal")
    if database is None and not read_only and log.exists() and not path.exists():
        raise StoreError(f"{path}: the store is missing, but its log {log.name} is there")
    kind = STORE
    if space is not None:
        first = (space.fingerprint, space.dimension, utc_now(), 0, 0, secrets.token_hex(16), 0)
        kind = STORE.beginning_with("meta", *first)
    opened = open_tables(path, database, kind, read_only=read_only)
    try:
        rows = opened.read_rows(_SPACE)
        if not rows:
            raise StoreError(f"{opened.name}: the store does not name the checkpoint that made it")
        found = VectorSpace(str(rows[0][0]), int(rows[0][1]))
        if space is not None and found.fingerprint != space.fingerprint:
            raise FingerprintMismatchError(found.fingerprint, space.fingerprint)
        if space is not None and found.dimension != space.dimension:
            raise StoreError(
                f"{opened.name}: the vectors have dimension {found.dimension}, "
                f"not {space.dimension}"
            )
    except BaseException:
        opened.close()
        raise
    return opened, found


def open_tables(
    path: Path, database: str | None, kind: DatabaseFormat, *, read_only: bool
) -> Connections:
    """Open the tables of a format: a file, or in the schema of a collection in a PostgreSQL.

    They are made if they are missing, unless `read_only`.
    """
    if database is None:
        return SQLiteConnections(path, read_only=read_only, kind=kind)
    require_extra("postgresql", "PostgreSQL", "psycopg")
    from index.postgresql.connections import PostgreSQLConnections  # optional

    return PostgreSQLConnections(database, collection_name(path.parent), kind, read_only=read_only)


def has_store(path: Path, database: str | None = None) -> bool:
    """Return whether there is a store: the file at `path`, or its schema in a PostgreSQL."""
    if database is None:
        return path.is_file()
    try:
        read_space(path, database)
    except StorageError:
        raise
    except StoreError:
        return False
    return True


def read_space(path: Path, database: str | None = None) -> VectorSpace:
    """Read which vectors a store holds, without opening it as a store.

    Raises:
        StoreError: it is missing, damaged, not a store or of another format.
    """
    opened, space = open_truth(path, database, None, read_only=True)
    opened.close()
    return space


def collection_name(data: Path) -> str:
    """Return the name of the collection whose data directory this is."""
    folder = data.absolute().parent
    named = folder.name == COLLECTIONS_DIRECTORY and (folder.parent / LOCK_FILE).exists()
    return data.absolute().name if named else DEFAULT_COLLECTION

"""The tables of the store in PostgreSQL, and how a schema is recognised as a store.

meta             of which checkpoint the vectors are, and the counters; each write locks its row
writes           a random stamp for each of the last writes, see `index.postgres.history`
documents        texts and titles are bytes, as PostgreSQL's text cannot hold U+0000
vectors          Float32[dimension], little-endian, and the sequence at which each was added
block_vectors    sentence blocks, as in `index.sqlite.block_vectors`
removals         the change log
metadata_values  one row for each value that a filter may ask for, see `index.store.metadata`
checksums        see `index.store.checksums`
attachments      small files that belong to the vectors, such as an adapter
"""

from encoder.adapter import VectorSpace
from index.errors import FingerprintMismatchError, StoreError
from index.postgres.connections import PostgreSQLConnections, Session
from index.postgres.history import advance_revision
from index.sqlite.connections import utc_now

FORMAT = 3
BEING_FILLED = 0  # the format of a store that a migration has not finished

# Code points are in the order of the bytes of their UTF-8; "C" orders bytes. Numbers are of any
# precision, so that an integer and a float are compared exactly. A field is the SHA-256 of its
# JSON Pointer: an entry of an index may have 2,704 bytes.
_TABLES = """
CREATE TABLE {s}.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    fingerprint text NOT NULL,
    dimension integer NOT NULL,
    created text NOT NULL,
    sequence bigint NOT NULL DEFAULT 0,
    last_vector_id bigint NOT NULL DEFAULT 0,
    log_start bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0
);
CREATE TABLE {s}.writes (
    revision bigint PRIMARY KEY,
    stamp text NOT NULL
);
CREATE TABLE {s}.documents (
    vector_id bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    content_hash bytea NOT NULL,
    tokens integer NOT NULL,
    tokens_read integer NOT NULL,
    blocks integer NOT NULL,
    blocks_left_out integer NOT NULL,
    tokens_encoded integer NOT NULL,
    indexed_at text NOT NULL,
    title bytea NOT NULL,
    metadata text NOT NULL,
    revision bigint NOT NULL,
    text bytea NOT NULL
);
CREATE INDEX documents_by_revision ON {s}.documents (revision);
CREATE TABLE {s}.vectors (
    vector_id bigint PRIMARY KEY REFERENCES {s}.documents ON DELETE CASCADE,
    sequence bigint NOT NULL,
    vector bytea NOT NULL
);
ALTER TABLE {s}.vectors ALTER COLUMN vector SET STORAGE EXTERNAL;
CREATE INDEX vectors_by_sequence ON {s}.vectors (sequence);
CREATE TABLE {s}.block_vectors (
    vector_id bigint PRIMARY KEY REFERENCES {s}.documents ON DELETE CASCADE,
    offsets bytea NOT NULL,
    vectors bytea NOT NULL
);
ALTER TABLE {s}.block_vectors ALTER COLUMN vectors SET STORAGE EXTERNAL;
CREATE TABLE {s}.removals (
    vector_id bigint PRIMARY KEY,
    added bigint NOT NULL,
    sequence bigint NOT NULL
);
CREATE INDEX removals_by_sequence ON {s}.removals (sequence);
CREATE TABLE {s}.metadata_values (
    vector_id bigint NOT NULL REFERENCES {s}.documents ON DELETE CASCADE,
    field bytea NOT NULL,
    kind smallint NOT NULL,
    number numeric,
    text bytea
);
CREATE INDEX metadata_by_document ON {s}.metadata_values (vector_id);
CREATE INDEX metadata_by_number ON {s}.metadata_values (field, kind, number);
CREATE INDEX metadata_by_text ON {s}.metadata_values (field, text) WHERE text IS NOT NULL;
CREATE TABLE {s}.checksums (
    vector_id bigint PRIMARY KEY REFERENCES {s}.documents ON DELETE CASCADE,
    summary bigint NOT NULL,
    details bigint NOT NULL,
    vector bigint NOT NULL,
    blocks bigint NOT NULL
);
CREATE TABLE {s}.attachments (
    name text PRIMARY KEY,
    revision bigint NOT NULL,
    content bytea NOT NULL
)"""
_SCHEMA_EXISTS = """
SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s"""
_COLUMNS = """
SELECT count(*) FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'meta' AND NOT a.attisdropped
    AND a.attname IN ('format', 'fingerprint', 'last_vector_id', 'log_start')"""
# Two processes that make a store at once: the second one waits, and finds it.
_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"""
_INSERT_META = """
INSERT INTO {s}.meta (format, fingerprint, dimension, created) VALUES (%s, %s, %s, %s)"""


def create_if_missing(
    connections: PostgreSQLConnections,
    fingerprint: str,
    dimension: int,
    store_format: int = FORMAT,
) -> None:
    """Create the tables of an empty store in one transaction, if they are not there.

    Raises:
        StoreError: they cannot be created.
    """
    with connections.reading() as session:
        if _is_there(session):
            return
    with connections.writing() as session:
        session.rows(_LOCK, f"longmatch {session.schema}")
        if _is_there(session):
            return
        # IF NOT EXISTS would ask for the right to create one even if it exists.
        if not session.value(_SCHEMA_EXISTS, session.schema):
            session.run("CREATE SCHEMA {s}")
        for statement in _TABLES.split(";\n"):
            session.run(statement)
        session.run(_INSERT_META, store_format, fingerprint, dimension, utc_now())
        advance_revision(session)


def check_is_ours(connections: PostgreSQLConnections, fingerprint: str, dimension: int) -> None:
    """Check that the schema is a store of this format and of this checkpoint.

    Raises:
        FingerprintMismatchError: the vectors in it are of another checkpoint.
        StoreError: it is missing, not a store, of another format or of another dimension.
    """
    space, _ = read_space(connections)
    if space.fingerprint != fingerprint:
        raise FingerprintMismatchError(space.fingerprint, fingerprint)
    if space.dimension != dimension:
        raise StoreError(
            f"{connections.address}: the vectors have dimension {space.dimension}, not {dimension}"
        )


def read_space(
    connections: PostgreSQLConnections, *, unfinished: bool = False
) -> tuple[VectorSpace, bool]:
    """Read which vectors a store holds, and whether it is finished; with `unfinished` it may not.

    Raises:
        StoreError: it is missing, not a store or of another format.
    """
    with connections.reading() as session:
        if not _is_there(session):
            raise StoreError(f"{connections.address}: there is no document store here")
        rows = session.rows("SELECT format, fingerprint, dimension FROM {s}.meta")
    if not rows:
        raise StoreError(f"{connections.address}: the store does not name its checkpoint")
    found, fingerprint, dimension = rows[0]
    if found == BEING_FILLED and not unfinished:
        raise StoreError(
            f"{connections.address}: a migration into this store is unfinished: repeat it"
        )
    if found not in (FORMAT, BEING_FILLED):
        raise StoreError(
            f"{connections.address}: the store has format {found}; "
            f"this version of Longmatch reads format {FORMAT}"
        )
    return VectorSpace(fingerprint, dimension), found == FORMAT


def holds_store(connections: PostgreSQLConnections) -> bool:
    """Return whether there are the tables of a store.

    Raises:
        StoreError: the database cannot be read.
    """
    with connections.reading() as session:
        return _is_there(session)


def _is_there(session: Session) -> bool:
    return int(session.value(_COLUMNS, session.schema)) == 4

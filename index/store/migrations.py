"""Bringing a store of an earlier format up to date when it is opened for writing.

Format 1 has no lexical index: its tables are made and filled from the texts that are stored. A
kill half way leaves format 1, and the next opening starts again: what an earlier version of
Longmatch does to such a store in between can then do no harm.

Format 2 has no block vectors: their table is made, and stays empty for the documents that are
there. They can be explained all the same, at the cost of encoding them then.

Format 3 counts words alone: the titles that each text names are looked for. It has no table of the
values in the metadata, which is made and filled, and no checksums, which are taken from the rows as
they are.

Format 4 has no near-duplicates: their tables are made, and stay empty until the texts that are
there are looked at (`Families.find`).
"""

import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from index.errors import StoreError
from index.lexical.tables import LEXICAL_SCHEMA, LEXICAL_TABLES, insert_terms
from index.lexical.terms import count_terms
from index.lexical.title_refresh import refresh_titles
from index.near_duplicates.tables import make_family_tables
from index.progress import SilentProgress
from index.sqlite.block_vectors import BLOCKS_SCHEMA
from index.sqlite.connections import SQLiteConnections
from index.sqlite.task_state import make_upkeep_if_missing
from index.store.checksums import CHECKSUMS_SCHEMA, write_checksums
from index.store.metadata import METADATA_SCHEMA, insert_metadata
from index.store.schema import (
    EARLIER_VERSIONS,
    SCHEMA_VERSION,
    VERSION_WITHOUT_FAMILIES,
    VERSION_WITHOUT_TITLES,
    VERSION_WITHOUT_WORDS,
)

_DOCUMENTS_A_TRANSACTION = 256
_NEXT_TEXTS = """
SELECT vector_id, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""

_log = logging.getLogger(__name__)


def bring_up_to_date(connections: SQLiteConnections, path: Path) -> None:
    """Bring the store to the present format; does nothing to one that has it.

    Raises:
        StoreError: it cannot be written, or a text in it is damaged.
    """
    make_upkeep_if_missing(connections)
    with connections.reading() as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in EARLIER_VERSIONS:
        return
    if version == VERSION_WITHOUT_FAMILIES:
        _make_families(connections, path)
        return
    if version == VERSION_WITHOUT_WORDS:
        make_lexical_index(connections)
    if version != VERSION_WITHOUT_TITLES:
        with connections.writing() as connection:
            connection.execute("DROP TABLE IF EXISTS block_vectors")
            connection.execute(BLOCKS_SCHEMA)
            connection.execute(f"PRAGMA user_version = {VERSION_WITHOUT_TITLES}")
    _log.info("%s: looking for the titles that texts name", path)
    refresh_titles(connections, SilentProgress())
    with connections.writing() as connection:
        make_metadata_values(connection, path)
    take_checksums(connections, VERSION_WITHOUT_FAMILIES)
    _make_families(connections, path)


def _make_families(connections: SQLiteConnections, path: Path) -> None:
    with connections.writing() as connection:
        make_family_tables(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _log.info("%s: the store has format %d now", path, SCHEMA_VERSION)


def make_metadata_values(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table of the values in the metadata from the metadata that is stored.

    Raises:
        StoreError: the metadata of a document is damaged.
    """
    connection.execute("DROP TABLE IF EXISTS metadata_values")
    connection.execute(METADATA_SCHEMA)
    for vector_id, metadata in connection.execute("SELECT vector_id, metadata FROM documents"):
        try:
            insert_metadata(connection, vector_id, dict(json.loads(metadata)))
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}: the metadata of a document is damaged") from error


def take_checksums(connections: SQLiteConnections, version: int = SCHEMA_VERSION) -> None:
    """Take the checksums of all rows as they are; the store has the format `version` then.

    Raises:
        StoreError: they cannot be written.
    """
    with connections.writing() as connection:
        connection.execute("DROP TABLE IF EXISTS checksums")
        connection.execute(CHECKSUMS_SCHEMA)
        for ids in _some_at_a_time(connection):
            write_checksums(connection, ids)
        connection.execute(f"PRAGMA user_version = {version}")


def make_lexical_index(connections: SQLiteConnections) -> None:
    """Make the lexical index from the texts that are stored, whatever there is of it.

    Raises:
        StoreError: it cannot be written, or a text is damaged.
    """
    _log.info("making the lexical index from the texts that are stored")
    with connections.writing() as connection:
        for table in LEXICAL_TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in LEXICAL_SCHEMA:
            connection.execute(statement)
    last: int | None = 0
    while last is not None:
        with connections.writing() as connection:
            last = _index_next(connection, last)


def _index_next(connection: sqlite3.Connection, last: int) -> int | None:
    """Index some documents after this vector id; return the last of them, None after the end."""
    texts = connection.execute(_NEXT_TEXTS, (last, _DOCUMENTS_A_TRANSACTION)).fetchall()
    if not texts:
        return None
    insert_terms(connection, [(vector_id, count_terms(text)) for vector_id, text in texts])
    return int(texts[-1][0])


def _some_at_a_time(connection: sqlite3.Connection) -> Iterator[list[int]]:
    ids = [row[0] for row in connection.execute("SELECT vector_id FROM documents")]
    for start in range(0, len(ids), _DOCUMENTS_A_TRANSACTION):
        yield ids[start : start + _DOCUMENTS_A_TRANSACTION]

"""Rebuild what a store derives from its documents: words, metadata values and checksums."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from index.alignment.tables import ALIGNMENT_SCHEMA, ALIGNMENT_TABLES
from index.errors import StoreError
from index.lexical.tables import LEXICAL_SCHEMA, LEXICAL_TABLES, insert_terms
from index.lexical.terms import count_terms_and_titles, known_titles
from index.lexical.title_refresh import note_titles_are_fresh
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections
from index.store.checksums import CHECKSUMS_SCHEMA, write_checksums
from index.store.metadata import METADATA_SCHEMA, insert_metadata

_DOCUMENTS_A_TRANSACTION = 256
_NEXT_TEXTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""


def rebuild_metadata_values(connection: sqlite3.Connection, path: Path) -> None:
    """Rebuild the table that filters read from the stored metadata.

    Raises:
        StoreError: the metadata of a document is damaged.
    """
    connection.execute("DROP TABLE IF EXISTS metadata_values")
    connection.execute(METADATA_SCHEMA)
    for vector_id, metadata in connection.execute("SELECT vector_id, metadata FROM documents"):
        try:
            insert_metadata(connection, [(vector_id, dict(json.loads(metadata)))])
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}: the metadata of a document is damaged") from error


def rebuild_alignment_tables(connections: SQLiteConnections) -> None:
    """Empty the alignment index, which is then filled from the block vectors.

    Raises:
        StoreError: it cannot be written.
    """
    with connections.writing() as connection:
        for table in ALIGNMENT_TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in ALIGNMENT_SCHEMA:
            connection.execute(statement)


def rebuild_checksums(connections: SQLiteConnections) -> None:
    """Compute the checksums of all rows as they are now.

    Raises:
        StoreError: they cannot be written.
    """
    with connections.writing() as connection:
        connection.execute("DROP TABLE IF EXISTS checksums")
        connection.execute(CHECKSUMS_SCHEMA)
        for ids in _some_at_a_time(connection):
            write_checksums(connection, ids)


def rebuild_lexical_index(connections: SQLiteConnections, progress: Progress) -> None:
    """Rebuild the lexical index from the stored texts, with the titles that they name.

    Raises:
        StoreError: it cannot be written, or a text is damaged.
    """
    with connections.writing() as connection:
        for table in LEXICAL_TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in LEXICAL_SCHEMA:
            connection.execute(statement)
        (number,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        titles = known_titles(row[0] for row in connection.execute("SELECT title FROM documents"))
    progress.started("indexing words", number)
    last = 0
    while True:
        with connections.writing() as connection:
            rows = connection.execute(_NEXT_TEXTS, (last, _DOCUMENTS_A_TRANSACTION)).fetchall()
            counted = [(n, count_terms_and_titles(text, titles, own)) for n, own, text in rows]
            insert_terms(connection, counted)
            if not rows:
                note_titles_are_fresh(connection)
                return
        last = int(rows[-1][0])
        progress.advanced(len(rows))


def _some_at_a_time(connection: sqlite3.Connection) -> Iterator[list[int]]:
    ids = [row[0] for row in connection.execute("SELECT vector_id FROM documents")]
    for start in range(0, len(ids), _DOCUMENTS_A_TRANSACTION):
        yield ids[start : start + _DOCUMENTS_A_TRANSACTION]

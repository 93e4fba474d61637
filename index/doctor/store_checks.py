"""Examine the document store: the database and every row of it."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from index.doctor.findings import Finding, Remedy
from index.document import is_too_deep
from index.sqlite.connections import open_reader
from index.store.checksums import (
    Checksums,
    blocks_checksum,
    details_checksum,
    read_checksums,
    summary_checksum,
    vector_checksum,
)
from index.store.schema import APPLICATION_ID, SCHEMA_VERSION

_PROBLEMS_SHOWN = 5
_DOCUMENTS_A_READ = 256
_REINDEX_HELPS = ("missing from index", "wrong # of entries in index", "non-unique entry in index")
_LEXICAL = ("terms", "document_terms", "removed_terms", "term_statistics")
_IDS = "SELECT vector_id FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"
_DOCUMENTS = """
SELECT vector_id, id, title, metadata, content_hash, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, indexed_at, text
FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_VECTORS = """
SELECT vector_id, sequence, vector FROM vectors
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_BLOCKS = """
SELECT vector_id, offsets, vectors FROM block_vectors
WHERE vector_id IN (SELECT value FROM json_each(?))"""


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a database that another process may be writing to.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = open_reader(path)
    connection.isolation_level = "DEFERRED"
    return connection


def examine_database(path: Path) -> Iterator[Finding]:
    """Look for damage in the structure of the file; after any, nothing else can be trusted.

    Raises:
        sqlite3.Error: it cannot be read at all.
    """
    with closing(open_for_reading(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
            problem = f"is not a store of format {SCHEMA_VERSION} (it says {version})"
            yield Finding(path.name, problem, Remedy.RESTORE_BACKUP)
            return
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            shown = "; ".join(problems[:_PROBLEMS_SHOWN])
            yield Finding(
                path.name, f"the database is damaged: {shown}", _database_remedy(problems)
            )
            return
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        if orphans:
            tables = ", ".join(sorted({str(row[0]) for row in orphans}))
            problem = f"{len(orphans)} rows of {tables} belong to no document"
            yield Finding(path.name, problem, Remedy.RESTORE_BACKUP)


def _database_remedy(problems: Sequence[str]) -> Remedy:
    if all(any(known in one for known in _REINDEX_HELPS) for one in problems):
        return Remedy.REINDEX_DATABASE
    if all(any(table in one.lower() for table in _LEXICAL) for one in problems):
        return Remedy.REBUILD_LEXICAL_INDEX
    return Remedy.RESTORE_BACKUP


@dataclass(slots=True)
class _Damage:
    """Damaged rows by vector id, the documents with their ids, and rows without checksums."""

    documents: dict[int, str] = field(default_factory=dict)
    vectors: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    unchecked: int = 0


def examine_rows(path: Path, dimension: int) -> Iterator[Finding]:
    """Compare every row with its checksum, every text with its hash, and sequences with the last.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    damaged = _Damage()
    with closing(open_for_reading(path)) as connection:
        connection.execute("BEGIN")  # one state for all that is compared
        (sequence,) = connection.execute("SELECT sequence FROM meta").fetchone()
        last = 0
        while ids := [row[0] for row in connection.execute(_IDS, (last, _DOCUMENTS_A_READ))]:
            _examine_some(connection, ids, (dimension, sequence), damaged)
            last = ids[-1]
    if damaged.documents:
        yield Finding(
            path.name,
            f"{_counted(list(damaged.documents.values()), 'document')} damaged in text, title, "
            "metadata or receipt: restore a backup, index them again, or",
            Remedy.SET_ASIDE,
            tuple(damaged.documents),
        )
    if damaged.vectors:
        problem = f"{_counted(damaged.vectors, 'vector')} damaged or missing"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damaged.vectors))
    if damaged.blocks:
        problem = f"the block vectors of {_counted(damaged.blocks, 'document')} damaged"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damaged.blocks))
    if damaged.unchecked:
        problem = f"{damaged.unchecked} documents have no checksums"
        yield Finding(path.name, problem, Remedy.REBUILD_CHECKSUMS)


def _examine_some(
    connection: sqlite3.Connection, ids: list[int], bounds: tuple[int, int], damaged: _Damage
) -> None:
    id_list = (json.dumps(ids),)
    checksums = read_checksums(connection, ids)
    damaged.unchecked += len(ids) - len(checksums)
    for row in connection.execute(_DOCUMENTS, id_list):
        if _document_is_damaged(row, checksums.get(row[0])):
            damaged.documents[row[0]] = str(row[1])
    vectors = {row[0]: row[1:] for row in connection.execute(_VECTORS, id_list)}
    for vector_id in ids:
        if _vector_is_damaged(vector_id, vectors.get(vector_id), bounds, checksums):
            damaged.vectors.append(vector_id)
    blocks = {row[0]: row[1:] for row in connection.execute(_BLOCKS, id_list)}
    for vector_id, known in checksums.items():
        if blocks_checksum(vector_id, *blocks.get(vector_id, (None, None))) != known.blocks:
            damaged.blocks.append(vector_id)


def _document_is_damaged(row: Sequence[Any], known: Checksums | None) -> bool:
    metadata, content_hash, values, text = row[3], row[4], row[5:11], row[11]
    if not isinstance(text, str) or sha256(text.encode()).digest() != content_hash:
        return True
    if _is_unreadable(metadata):
        return True
    return known is not None and (known.summary, known.details) != (
        summary_checksum(row[:4]),
        details_checksum(content_hash, values),
    )


def _is_unreadable(metadata: object) -> bool:
    """Return whether metadata is no JSON object, or is too deep to be sent."""
    try:
        read = json.loads(metadata) if isinstance(metadata, str) else None
    except (ValueError, RecursionError):
        return True
    return not isinstance(read, dict) or is_too_deep(read)


def _vector_is_damaged(
    vector_id: int,
    row: Sequence[Any] | None,
    bounds: tuple[int, int],
    checksums: Mapping[int, Checksums],
) -> bool:
    dimension, last = bounds
    if row is None:
        return True
    sequence, vector = row
    if not isinstance(vector, bytes) or len(vector) != 4 * dimension:
        return True
    if not isinstance(sequence, int) or not 0 < sequence <= last:
        return True
    known = checksums.get(vector_id)
    if known is not None:
        return known.vector != vector_checksum(vector_id, vector)
    return not bool(np.isfinite(np.frombuffer(vector, dtype="<f4")).all())


def _counted(damaged: Sequence[object], noun: str) -> str:
    shown = ", ".join(str(one) for one in damaged[:_PROBLEMS_SHOWN])
    more = ", …" if len(damaged) > _PROBLEMS_SHOWN else ""
    verb = "is" if len(damaged) == 1 else "are"
    return f"{len(damaged)} {noun}{'' if len(damaged) == 1 else 's'} ({shown}{more}) {verb}"

"""Whole documents of the store of a data directory, read and written as they are stored."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import starmap
from pathlib import Path
from typing import Any

from index.alignment.tables import FittedSpace, find_space, insert_space, load_space
from index.errors import DamagedDocumentError
from index.sqlite.connections import SQLiteConnections
from index.sqlite.task_state import LOG_START, write_state
from index.store.checksums import read_checksums, unsound_row
from index.store.records import DocumentRow, StoreCounters

ALIGNMENT = "alignment-space"  # the attachment that holds the space that blocks are aligned in
_DOCUMENTS_A_BATCH = 128
_ROWS_AFTER = """
SELECT d.vector_id, v.sequence, d.id, d.content_hash, d.title, d.metadata, d.text, d.tokens,
    d.tokens_read, d.blocks, d.blocks_left_out, d.tokens_encoded, d.indexed_at, v.vector,
    b.offsets, b.vectors
FROM documents d JOIN vectors v USING (vector_id) LEFT JOIN block_vectors b USING (vector_id)
WHERE d.vector_id > ? ORDER BY d.vector_id LIMIT ?"""
_COUNTERS = """
SELECT sequence, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'documents'),
    (SELECT count(*) FROM documents) FROM meta"""
_LAST = """
SELECT coalesce(max(vector_id), 0) FROM documents"""


@dataclass(frozen=True, slots=True)
class SQLiteRows:
    """The documents of a store, as they are in one transaction."""

    connection: sqlite3.Connection
    path: Path

    def counters(self) -> StoreCounters:
        """Return the counters of the store."""
        return StoreCounters(*map(int, self.connection.execute(_COUNTERS).fetchone()))

    def created(self) -> str:
        """Return when the store was made."""
        return str(self.connection.execute("SELECT created FROM meta").fetchone()[0])

    def last(self) -> int:
        """Return the highest vector id; 0 without documents."""
        return int(self.connection.execute(_LAST).fetchone()[0])

    def after(self, vector_id: int, limit: int) -> list[DocumentRow]:
        """Return the first documents after a vector id, ascending.

        Raises:
            DamagedDocumentError: one is damaged.
        """
        found = self.connection.execute(_ROWS_AFTER, (vector_id, limit)).fetchall()
        rows = list(starmap(_document_row, found))
        known = read_checksums(self.connection, [one.vector_id for one in rows])
        for one in rows:
            if unsound_row(one, known):
                raise DamagedDocumentError(self.path, one.document_id, "row")
        return rows

    def alignment(self) -> Mapping[str, bytes]:
        """Return the space that blocks are aligned in as an attachment; nothing without one.

        Raises:
            ValueError: it is damaged.
        """
        found = find_space(self.connection)
        if found is None:
            return {}
        space = load_space(self.connection, found.space_id)
        return {ALIGNMENT: FittedSpace(space, found.documents, found.sequence).pack()}


def digest_of(
    after: Callable[[int, int], Sequence[DocumentRow]], advanced: Callable[[int], None]
) -> tuple[int, str]:
    """Return the number of documents and a digest over everything that is stored of them.

    Args:
        after: returns the first documents after a vector id, of which there are so many at most.
        advanced: is called with how many were read.
    """
    digest, count, last = sha256(), 0, 0
    while rows := after(last, _DOCUMENTS_A_BATCH):
        for one in rows:
            text = sha256(one.text.encode()).digest()
            values = json.dumps([*one.checked()[:4], *one.receipt, one.indexed_at, one.sequence])
            parts = (values.encode(), text, one.content_hash, one.vector)
            for part in (*parts, one.offsets or b"", one.block_vectors or b""):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        count, last = count + len(rows), rows[-1].vector_id
        advanced(len(rows))
    return count, digest.hexdigest()


def finish(
    connections: SQLiteConnections, counters: StoreCounters, attachments: Mapping[str, bytes]
) -> None:
    """Give a store that was filled the counters of its source, and its alignment space.

    Raises:
        StoreError: it cannot be written.
        ValueError: the alignment space is damaged.
    """
    with connections.writing() as connection:
        connection.execute("UPDATE meta SET sequence = ?", (counters.sequence,))
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'documents'")
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('documents', ?)",
            (counters.last_vector_id,),
        )
        write_state(connection, LOG_START, counters.sequence)
        if ALIGNMENT in attachments and find_space(connection) is None:
            insert_space(connection, FittedSpace.unpack(attachments[ALIGNMENT]), current=True)


def _document_row(*row: Any) -> DocumentRow:
    vector_id, sequence, document_id, content_hash, title, metadata, text, *rest = row
    described = (vector_id, sequence, document_id, content_hash, title, metadata, text)
    return DocumentRow(*described, tuple(rest[:5]), *rest[5:])

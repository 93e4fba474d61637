"""A checksum for each row of the store, so that a byte that changed on the disk is noticed.

SQLite keeps none for its pages. These are CRC-32, computed when rows are written and compared when
they are read: any burst of up to 32 changed bits in a row is found, and all but one in 2^32 of
other changes. They protect against faulty disks, not against tampering.

summary   vector id, id, title, metadata: what every match shows
details   content hash, receipt, time: with the text, what `find` gives
vector    the document vector
blocks    the sentence blocks and their vectors
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from index.errors import DOCTOR, DamagedDocumentError

Rows = Sequence[Sequence[Any]]

CHECKSUMS_SCHEMA = """
CREATE TABLE checksums (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    summary INTEGER NOT NULL,
    details INTEGER NOT NULL,
    vector INTEGER NOT NULL,
    blocks INTEGER NOT NULL
)"""
_ROWS = """
SELECT d.vector_id, d.id, d.title, d.metadata, d.content_hash, d.tokens, d.tokens_read, d.blocks,
    d.blocks_left_out, d.tokens_encoded, d.payload_characters, d.indexed_at,
    v.vector, b.offsets, b.vectors
FROM documents d JOIN vectors v USING (vector_id) LEFT JOIN block_vectors b USING (vector_id)
WHERE d.vector_id IN (SELECT value FROM json_each(?))"""
_WRITE = """
INSERT OR REPLACE INTO checksums (vector_id, summary, details, vector, blocks)
VALUES (?, ?, ?, ?, ?)"""
_READ = """
SELECT vector_id, summary, details, vector, blocks
FROM checksums WHERE vector_id IN (SELECT value FROM json_each(?))"""


_encode = json.JSONEncoder(default=repr).encode  # `json.dumps` would make another each time


@dataclass(frozen=True, slots=True)
class Checksums:
    """The checksums of one document."""

    summary: int
    details: int
    vector: int
    blocks: int


def write_checksums(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    """Compute the checksums of these documents from their rows, inside a transaction."""
    insert_checksums(connection, connection.execute(_ROWS, (_as_list(vector_ids),)).fetchall())


def insert_checksums(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Write the checksums of documents whose rows are as `checksums_of` takes them."""
    connection.executemany(_WRITE, [(row[0], *checksums_of(row)) for row in rows])


def read_checksums(
    connection: sqlite3.Connection, vector_ids: Iterable[int]
) -> Mapping[int, Checksums]:
    """Return the checksums of these documents; those without are absent."""
    rows = connection.execute(_READ, (_as_list(vector_ids),))
    return {vector_id: Checksums(*values) for vector_id, *values in rows}


def divided(
    rows: Sequence[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], Mapping[int, Checksums]]:
    """Divide rows that begin with a vector id and end with four checksums, or NULL for each."""
    known = {row[0]: Checksums(*row[-4:]) for row in rows if row[-1] is not None}
    return [row[:-4] for row in rows], known


def checksums_of(row: Sequence[Any]) -> tuple[int, int, int, int]:
    """Return the checksums of a document: summary, details, vector, blocks.

    Its row is vector id, id, title, metadata, content hash, the receipt's fields, time, vector,
    offsets and vectors of the blocks.
    """
    vector, offsets, vectors = row[-3:]
    return (
        summary_checksum(row[:4]),
        details_checksum(row[4], row[5:-3]),
        vector_checksum(row[0], vector),
        blocks_checksum(row[0], offsets, vectors),
    )


def summary_checksum(row: Sequence[Any]) -> int:
    """Return the checksum of vector id, id, title and metadata."""
    return _of_values(row)


def details_checksum(content_hash: bytes, values: Sequence[Any]) -> int:
    """Return the checksum of the content hash and of the receipt's fields and the time."""
    return crc32(content_hash, _of_values(values))


def vector_checksum(vector_id: int, vector: bytes) -> int:
    """Return the checksum of a vector; it depends on the vector id, so vectors cannot be
    swapped."""
    return crc32(_as_bytes(vector), vector_id & 0xFFFFFFFF)


def blocks_checksum(vector_id: int, offsets: bytes | None, vectors: bytes | None) -> int:
    """Return the checksum of sentence blocks and their vectors; 0 where there are none."""
    if offsets is None or vectors is None:
        return 0
    return crc32(_as_bytes(vectors), crc32(_as_bytes(offsets), vector_id & 0xFFFFFFFF))


def unsound_summaries(rows: Rows, checksums: Mapping[int, Checksums]) -> set[int]:
    """Return the vector ids of damaged rows that begin with vector id, id, title and metadata."""
    return {
        row[0]
        for row in rows
        if (known := checksums.get(row[0])) and known.summary != summary_checksum(row[:4])
    }


def unsound_documents(rows: Rows, checksums: Mapping[int, Checksums]) -> set[int]:
    """Return the vector ids of damaged rows of vector id, id, text, title, metadata, the receipt's
    fields and time.
    """
    found = unsound_summaries([(row[0], row[1], row[3], row[4]) for row in rows], checksums)
    for vector_id, _, text, _, _, *values in rows:
        known = checksums.get(vector_id)
        content_hash = sha256(str(text).encode("utf-8", "replace")).digest()
        if known and known.details != details_checksum(content_hash, values):
            found.add(vector_id)
    return found


def unsound_vectors(rows: Rows, checksums: Mapping[int, Checksums]) -> set[int]:
    """Return the vector ids of damaged rows of vector id and vector."""
    return {
        vector_id
        for vector_id, vector in rows
        if (known := checksums.get(vector_id))
        and known.vector != vector_checksum(vector_id, vector)
    }


def unsound_blocks(rows: Rows, checksums: Mapping[int, Checksums]) -> set[int]:
    """Return the vector ids of damaged rows of vector id, offsets and block vectors."""
    return {
        row[0]
        for row in rows
        if (known := checksums.get(row[0])) and known.blocks != blocks_checksum(*row)
    }


def _of_values(values: Sequence[Any]) -> int:
    return crc32(_encode(list(values)).encode())


def _as_bytes(value: object) -> bytes:
    # A changed byte can turn stored bytes into a number or a text.
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")


def _as_list(vector_ids: Iterable[int]) -> str:
    return json.dumps([int(vector_id) for vector_id in vector_ids])


IdsOf = Callable[[Sequence[int]], Mapping[int, str]]
_log = logging.getLogger(__name__)


class DamageLog:
    """The damaged documents of an open store. Safe to use from many threads.

    One damaged document makes no other one unreadable: a caller that reads many leaves it out, and
    one that reads it gets an error that names it. It is remembered, for the operator, until it is
    removed or replaced.
    """

    def __init__(self, ids_of: IdsOf, path: Path) -> None:
        """Log damage of the store at `path`; `SQLiteDocumentStore.damage` is one.

        Args:
            ids_of: returns the ids of the documents of these vector ids; unknown ones are absent.
            path: of the store.
        """
        self._ids_of = ids_of
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[int, set[str]] = {}

    def __len__(self) -> int:
        """Return how many documents are known to be damaged."""
        return len(self._known)

    def __contains__(self, vector_id: int) -> bool:
        """Return whether the document of a vector id is known to be damaged."""
        return vector_id in self._known

    def parts(self) -> set[tuple[int, str]]:
        """Return what is known: vector ids, each with a part that is damaged."""
        with self._lock:
            return {(vector_id, part) for vector_id, parts in self._known.items() for part in parts}

    def without(
        self, rows: Sequence[tuple[Any, ...]], damaged: Iterable[int], part: str, *, skip: bool
    ) -> Sequence[tuple[Any, ...]]:
        """Return rows that begin with a vector id without those of damaged documents.

        Args:
            rows: that were read.
            damaged: vector ids of those that are damaged.
            part: what of these documents it is, for the log.
            skip: leave them out, instead of raising.

        Raises:
            DamagedDocumentError: there is one, and it is not to be skipped.
        """
        found = set(damaged)
        if not found:
            return rows
        first = self.note(found, part)
        if not skip:
            raise first
        return [row for row in rows if row[0] not in found]

    def note(self, vector_ids: Iterable[int], part: str) -> DamagedDocumentError:
        """Remember that documents are damaged, log the new ones, and return the error of one."""
        found = sorted(vector_ids)
        names = self._names(found)
        with self._lock:
            new = [vector_id for vector_id in found if part not in self._known.get(vector_id, ())]
            for number in new:
                self._known.setdefault(number, set()).add(part)
        for number in new:
            _log.error(
                "%s: document %r is damaged in its %s: %s --repair",
                *(self._path, names[number], part, DOCTOR),
            )
        return DamagedDocumentError(self._path, names[found[0]], part)

    def forget(self, vector_ids: Iterable[int]) -> None:
        """Forget documents that were removed."""
        with self._lock:
            for vector_id in vector_ids:
                self._known.pop(int(vector_id), None)

    def _names(self, vector_ids: Sequence[int]) -> dict[int, str]:
        names = self._ids_of(vector_ids)
        return {
            vector_id: names.get(vector_id, f"of vector id {vector_id}") for vector_id in vector_ids
        }

"""A checksum for each row of the store, so that a byte that changed on the disk is noticed.

SQLite keeps none for its pages. These are CRC-32, computed when rows are written and compared when
they are read: any burst of up to 32 changed bits in a row is found, and all but one in 2^32 of
other changes. They protect against faulty disks, not against tampering. A row whose checksums are
missing is damaged like one that differs from them.

summary   vector id, id, title, metadata: what every match shows
details   content hash, receipt, time: with the text, what `find` gives
vector    the document vector
blocks    the sentence blocks and their vectors
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from index.errors import DOCTOR, DamagedDocumentError

Rows = Sequence[tuple[Any, ...]]

CHECKSUMS_SCHEMA = """
CREATE TABLE checksums (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    summary INTEGER NOT NULL,
    details INTEGER NOT NULL,
    vector INTEGER NOT NULL,
    blocks INTEGER NOT NULL
)"""
_WHOLE_ROWS = """
SELECT d.vector_id, d.id, d.title, d.metadata, d.content_hash, d.tokens, d.tokens_read, d.blocks,
    d.blocks_left_out, d.tokens_encoded, d.payload_characters, d.indexed_at,
    v.vector, b.offsets, b.vectors, d.text, v.sequence, c.summary, c.details, c.vector, c.blocks
FROM documents d LEFT JOIN vectors v USING (vector_id) LEFT JOIN block_vectors b USING (vector_id)
LEFT JOIN checksums c USING (vector_id)"""
_ROWS = f"{_WHOLE_ROWS} WHERE d.vector_id IN (SELECT value FROM json_each(?))"  # noqa: S608
_ROWS_AFTER = f"{_WHOLE_ROWS} WHERE d.vector_id > ? ORDER BY d.vector_id LIMIT ?"
_ROWS_A_READ = 64
_WRITE = """
INSERT OR REPLACE INTO checksums (vector_id, summary, details, vector, blocks)
VALUES (?, ?, ?, ?, ?)"""


_encode = json.JSONEncoder(default=repr).encode  # `json.dumps` would make another each time


def write_checksums(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    """Compute the checksums of these documents from their rows, inside a transaction."""
    ids = json.dumps([int(vector_id) for vector_id in vector_ids])
    insert_checksums(connection, (row[:15] for row in connection.execute(_ROWS, (ids,)).fetchall()))


def insert_checksums(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Write the checksums of documents whose rows are as `checksums_of` takes them."""
    connection.executemany(_WRITE, [(row[0], *checksums_of(row)) for row in rows])


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


def unsound_summaries(rows: Rows) -> set[int]:
    """Return the vector ids of damaged rows: vector id, id, title, metadata, …, checksums."""
    return {row[0] for row in rows if row[-4] != summary_checksum(row[:4])}


def unsound_documents(rows: Rows) -> set[int]:
    """Return the vector ids of damaged rows of vector id, id, text, title, metadata, the receipt's
    fields, time and checksums.
    """
    found = set()
    for vector_id, document_id, text, title, metadata, *values, summary, details, _, _ in rows:
        content_hash = sha256(str(text).encode("utf-8", "replace")).digest()
        expected = (
            summary_checksum((vector_id, document_id, title, metadata)),
            details_checksum(content_hash, values),
        )
        if (summary, details) != expected:
            found.add(vector_id)
    return found


def unsound_vectors(rows: Rows) -> set[int]:
    """Return the vector ids of damaged rows of vector id, vector and checksums."""
    return {row[0] for row in rows if row[-2] != vector_checksum(*row[:2])}


def unsound_blocks(rows: Rows) -> set[int]:
    """Return the vector ids of damaged rows of vector id, offsets, block vectors and checksums."""
    return {row[0] for row in rows if row[-1] != blocks_checksum(*row[:3])}


def _of_values(values: Sequence[Any]) -> int:
    return crc32(_encode(list(values)).encode())


def _as_bytes(value: object) -> bytes:
    # A changed byte can turn stored bytes into a number or a text.
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Damage:
    """The damaged documents of a store, by vector id with their ids.

    Attributes:
        documents: those of which text, title, metadata or receipt is damaged.
        encodings: those whose vector, block vectors or checksums are damaged or missing.
    """

    documents: dict[int, str] = field(default_factory=dict)
    encodings: dict[int, str] = field(default_factory=dict)


def find_damage(connection: sqlite3.Connection) -> Damage:
    """Compare every row with its checksums and every text with its hash, in one transaction.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    damage = Damage()
    (last,) = connection.execute("SELECT sequence FROM meta").fetchone()
    for row in _whole_rows(connection):
        vector_id, document_id, _, metadata, content_hash, *_ = row
        text, sequence, *known = row[15:]
        summary, details, vector, blocks = checksums_of(row[:15])
        unknown = known == [None] * 4
        if (
            not isinstance(text, str)
            or sha256(text.encode("utf-8", "replace")).digest() != content_hash
            or ([summary, details] != known[:2] and not (unknown and _is_object(metadata)))
        ):
            damage.documents[vector_id] = str(document_id)
        elif [vector, blocks] != known[2:] or not (
            isinstance(sequence, int) and 0 < sequence <= last
        ):
            damage.encodings[vector_id] = str(document_id)
    return damage


def _whole_rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    last = -(2**63)
    while rows := connection.execute(_ROWS_AFTER, (last, _ROWS_A_READ)).fetchall():
        yield from rows
        last = rows[-1][0]


def _is_object(metadata: object) -> bool:
    try:
        return isinstance(metadata, str) and isinstance(json.loads(metadata), dict)
    except (ValueError, RecursionError):
        return False


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
        self._known: dict[int, str] = {}

    def __len__(self) -> int:
        """Return how many documents are known to be damaged."""
        return len(self._known)

    def __contains__(self, vector_id: int) -> bool:
        """Return whether the document of a vector id is known to be damaged."""
        return vector_id in self._known

    def parts(self) -> set[tuple[int, str]]:
        """Return what is known: vector ids, each with the part that was found to be damaged."""
        with self._lock:
            return set(self._known.items())

    def without(self, rows: Rows, damaged: Iterable[int], part: str, *, skip: bool) -> Rows:
        """Return rows of a vector id, …, checksums without these, and without damaged ones.

        Args:
            rows: that were read.
            damaged: vector ids of those that are damaged.
            part: what of these documents it is, for the log.
            skip: leave them out, instead of raising.

        Raises:
            DamagedDocumentError: there is one, and it is not to be skipped.
        """
        found = set(damaged)
        if found:
            first = self.note(found, part)
            if not skip:
                raise first
        return [row[:-4] for row in rows if row[0] not in found]

    def note(self, vector_ids: Iterable[int], part: str) -> DamagedDocumentError:
        """Remember that documents are damaged, log the new ones, and return the error of one."""
        found = sorted(vector_ids)
        names = {number: f"of vector id {number}" for number in found} | dict(self._ids_of(found))
        with self._lock:
            new = [number for number in found if number not in self._known]
            self._known.update(dict.fromkeys(new, part))
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

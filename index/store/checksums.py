"""A checksum in each row of the truth, so that a byte that changed on the disk is found.

SQLite keeps none for its pages. These are CRC-32, computed when a row is written and compared by
the doctor and by a backup: any burst of up to 32 changed bits in a row is found, and all but one in
2^32 of other changes. They protect against faulty disks, not against tampering.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from zlib import crc32

from index.store.database import Connection

_ROWS = """
SELECT d.vector_id, d.id, d.content_hash, d.tokens, d.tokens_read, d.blocks, d.blocks_left_out,
    d.tokens_encoded, d.payload_characters, d.indexed_at, d.title, d.metadata,
    d.checksum, d.text, v.checksum, v.sequence, v.vector, b.offsets, b.vectors
FROM documents d LEFT JOIN vectors v USING (vector_id) LEFT JOIN block_vectors b USING (vector_id)
ORDER BY d.vector_id"""
_encode = json.JSONEncoder(default=repr).encode  # `json.dumps` would make another each time


def document_checksum(row: Sequence[Any]) -> int:
    """Return the checksum of a document from vector id, id, content hash, the receipt's fields,
    time, title and metadata; the content hash stands for the text.
    """
    return crc32(_encode(list(row)).encode())


def encoding_checksum(vector_id: int, sequence: int, *stored: bytes | None) -> int:
    """Return the checksum of a vector, and the offsets and vectors of its sentence blocks.

    None of them can be swapped with that of another document.
    """
    checksum = crc32(f"{vector_id} {sequence}".encode())
    for part in stored:
        checksum = crc32(_as_bytes(part), checksum)
    return checksum


def _as_bytes(value: object) -> bytes:
    # A changed byte can turn stored bytes into a number or a text.
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Damage:
    """The damaged documents of a store, by vector id with their ids.

    Attributes:
        documents: those of which text, title, metadata or receipt is damaged.
        encodings: those whose vector or block vectors are damaged or missing.
    """

    documents: dict[int, str] = field(default_factory=dict)
    encodings: dict[int, str] = field(default_factory=dict)


def find_damage(connection: Connection) -> Damage:
    """Compare every row of the truth with its checksum, and every text with its hash.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    damage = Damage()
    (last,) = connection.execute("SELECT sequence FROM meta").fetchone()
    for row in connection.execute(_ROWS):
        vector_id, document_id, content_hash = row[:3]
        checksum, text, of_encoding, sequence, *encoding = row[12:]
        if (
            not isinstance(text, str)
            or sha256(text.encode("utf-8", "replace")).digest() != content_hash
            or document_checksum(row[:12]) != checksum
        ):
            damage.documents[vector_id] = str(document_id)
        elif (
            not (isinstance(sequence, int) and 0 < sequence <= last)
            or encoding_checksum(vector_id, sequence, *encoding) != of_encoding
        ):
            damage.encodings[vector_id] = str(document_id)
    return damage


def file_problems(connection: Connection) -> list[str]:
    """Let SQLite check the file of a database; return what is wrong with it, the first of it."""
    problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
    return [] if problems == ["ok"] else problems

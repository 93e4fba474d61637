"""The file of the words: the dictionary of terms, and the documents that no segment holds yet.

terms           every term, under an id that is never given again
pending         documents whose terms are still to be counted
document_terms  of each document that came, went or was counted again since the segments were
                published, its terms with their counts and a CRC-32; NULL where it went
words           one row, see `WordsState`, and the manifest of the published segments

Each function works inside a transaction.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Int64, UInt32
from index.sqlite.connections import DatabaseFormat, vector_id_list
from index.store.database import Connection

UInt16 = NDArray[np.uint16]
DocumentTerms = tuple[UInt32, UInt16]
"""Term ids [U], ascending, and how often the document has each of them [U]."""

NO_TERMS: DocumentTerms = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint16))

_BYTES_A_TERM = 6
_BYTES_OF_CHECKSUM = 4
MAX_COUNT = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTerms:
    """The terms of N documents, one document after another.

    Attributes:
        vector_ids: Int64[N], ascending.
        term_ids: UInt32[M], ascending within a document.
        counts: UInt16[M], how often the document has each of them.
        ends: Int64[N], where those of each document end.
    """

    vector_ids: Int64
    term_ids: UInt32
    counts: UInt16
    ends: Int64


@dataclass(frozen=True, slots=True)
class WordsState:
    """The state of the file.

    Attributes:
        identity: drawn when the file was made, so that no segments of another are taken for its.
        changes: how many documents came, went or were counted again.
        published: how many of these changes the published segments hold.
        titles: how many there were when all texts were last searched for titles.
        counted: whether all documents have been counted since the file was made.
    """

    identity: str
    changes: int
    published: int
    titles: int
    counted: int


WORDS_FILE = "words.sqlite3"
WORDS = DatabaseFormat(
    "words",
    application_id=0x4C4D5744,
    version=5,
    schema="""
CREATE TABLE pending (vector_id INTEGER PRIMARY KEY);
CREATE TABLE terms (term_id INTEGER PRIMARY KEY AUTOINCREMENT, term TEXT NOT NULL UNIQUE);
CREATE TABLE document_terms (
    vector_id INTEGER PRIMARY KEY,
    change INTEGER NOT NULL,
    terms BLOB
);
CREATE INDEX document_terms_by_change ON document_terms (change);
CREATE TABLE words (
    identity TEXT NOT NULL,
    changes INTEGER NOT NULL,
    published INTEGER NOT NULL,
    titles INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    manifest TEXT NOT NULL
);
INSERT INTO words VALUES (lower(hex(randomblob(16))), 0, 0, 0, 0, '');
""",
)

STATE = """
SELECT identity, changes, published, titles, counted OR NOT EXISTS (SELECT 1 FROM pending)
FROM words"""
_ADD_PENDING = """
INSERT OR IGNORE INTO pending (vector_id) VALUES (?)"""
_REMOVE_PENDING = """
DELETE FROM pending WHERE vector_id IN (SELECT value FROM json_each(?))"""
_NOTE_COUNTED = """
UPDATE words SET counted = 1 WHERE counted = 0 AND NOT EXISTS (SELECT 1 FROM pending)"""
PENDING = """
SELECT vector_id FROM pending WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
_COUNT_CHANGES = """
UPDATE words SET changes = changes + ? RETURNING changes"""
_NOTE_PUBLISHED = """
UPDATE words SET published = ?, manifest = ?"""
_MANIFEST = """
SELECT manifest FROM words"""
_NOTE_TITLES = """
UPDATE words SET titles = ?"""
_INSERT_TERM = """
INSERT INTO terms (term) VALUES (?)"""
_LAST_TERM_ID = """
SELECT coalesce(max(term_id), 0) FROM terms"""
_TERM_IDS = """
SELECT term, term_id FROM terms WHERE term IN (SELECT value FROM json_each(?))"""
_TERMS_AFTER = """
SELECT term, term_id FROM terms WHERE term_id > ?"""
_DROP_TERMS = """
DELETE FROM terms WHERE term_id IN (SELECT value FROM json_each(?))"""
_WRITE_DOCUMENT = """
INSERT OR REPLACE INTO document_terms (vector_id, change, terms) VALUES (?, ?, ?)"""
_CHANGED_SINCE = """
SELECT vector_id, terms FROM document_terms WHERE vector_id IN (
    SELECT vector_id FROM document_terms WHERE change > ?
) ORDER BY vector_id"""
_FORGET = """
DELETE FROM document_terms WHERE change <= ?"""


def read_state(connection: Connection) -> WordsState:
    """Return the state of the file."""
    return WordsState(*connection.execute(STATE).fetchone())


def add_pending(connection: Connection, vector_ids: Sequence[int]) -> None:
    """Note that documents are to be counted; until then they have the terms that they had."""
    connection.executemany(_ADD_PENDING, [(vector_id,) for vector_id in vector_ids])


def write_terms(connection: Connection, counted: Sequence[tuple[int, Mapping[str, int]]]) -> None:
    """Write the terms of documents, given as vector ids and counts of terms."""
    terms = set[str]().union(*(counts for _, counts in counted))
    term_ids = find_term_ids(connection, terms)
    new = sorted(terms - term_ids.keys())
    if new:
        ((last,),) = connection.execute(_LAST_TERM_ID).fetchall()
        connection.executemany(_INSERT_TERM, [(term,) for term in new])
        term_ids |= read_new_terms(connection, last)
    _write(connection, [(vector_id, _pack(counts, term_ids)) for vector_id, counts in counted])


def remove_terms(connection: Connection, vector_ids: Sequence[int]) -> None:
    """Note that documents went."""
    _write(connection, [(vector_id, None) for vector_id in vector_ids])
    end_pending(connection, vector_ids)


def end_pending(connection: Connection, vector_ids: Sequence[int]) -> None:
    """Note that documents are counted, or are not there to be counted."""
    connection.execute(_REMOVE_PENDING, (vector_id_list(vector_ids),))
    connection.execute(_NOTE_COUNTED)


def _write(connection: Connection, rows: Sequence[tuple[int, bytes | None]]) -> None:
    ((change,),) = connection.execute(_COUNT_CHANGES, (len(rows),)).fetchall()
    connection.executemany(_WRITE_DOCUMENT, [(n, change, terms) for n, terms in rows])


def read_changed(
    connection: Connection, since: int, most: int
) -> Iterator[tuple[Int64, JoinedTerms]]:
    """Yield the documents that changed since a change, some at a time.

    Args:
        connection: to read from.
        since: the change.
        most: no more documents are added to those that have this many terms together.

    Yields:
        All vector ids Int64[N], ascending, and the terms of those that are there.

    Raises:
        ValueError: a row is damaged.
    """
    some: list[tuple[int, bytes | None]] = []
    size = 0
    for row in connection.execute(_CHANGED_SINCE, (since,)):
        some.append(row)
        size += len(row[1] or b"") // _BYTES_A_TERM
        if size >= most:
            yield _ids(some), _join(some)
            some, size = [], 0
    if some:
        yield _ids(some), _join(some)


def read_new_terms(connection: Connection, after: int) -> dict[str, int]:
    """Return the terms of the ids above `after`.

    Raises:
        ValueError: a term or an id is none, as after a flipped bit.
    """
    found: dict[str, int] = dict(connection.execute(_TERMS_AFTER, (after,)))
    if not all(isinstance(term, str) for term in found) or max(found.values(), default=0) >= 2**32:
        raise ValueError("the terms are damaged")
    return found


def read_manifest(connection: Connection) -> str:
    """Return the manifest of the published segments."""
    return str(connection.execute(_MANIFEST).fetchone()[0])


def note_published(connection: Connection, changes: int, manifest: str, unused: Int64) -> None:
    """Note which segments hold these changes; forget their documents, and terms that none has."""
    connection.execute(_FORGET, (changes,))
    connection.execute(_NOTE_PUBLISHED, (changes, manifest))
    connection.execute(_DROP_TERMS, (json.dumps(unused.tolist()),))


def note_titles(connection: Connection, changes: int) -> None:
    """Note that all texts of these changes were searched for all titles."""
    connection.execute(_NOTE_TITLES, (changes,))


def find_term_ids(connection: Connection, terms: Iterable[str]) -> dict[str, int]:
    """Return the ids of these terms; unknown ones are absent."""
    # Sorted, since that is the order of the index on the terms.
    return dict(connection.execute(_TERM_IDS, (json.dumps(sorted(terms)),)))


def _pack(terms: Mapping[str, int], term_ids: Mapping[str, int]) -> bytes:
    ids = np.fromiter(map(term_ids.__getitem__, terms), dtype="<u4", count=len(terms))
    counts = np.fromiter(terms.values(), dtype=np.int64, count=len(terms))
    order = np.argsort(ids)
    counts = np.minimum(counts[order], MAX_COUNT)
    content = ids[order].tobytes() + counts.astype("<u2").tobytes()
    return content + crc32(content).to_bytes(_BYTES_OF_CHECKSUM, "little")


def _unpack(terms: bytes) -> bytes:
    content, checksum = terms[:-_BYTES_OF_CHECKSUM], terms[-_BYTES_OF_CHECKSUM:]
    if crc32(content) != int.from_bytes(checksum, "little"):
        raise ValueError("the terms of a document are damaged")
    return content


def _ids(rows: Sequence[tuple[int, bytes | None]]) -> Int64:
    return np.array([vector_id for vector_id, _ in rows], dtype=np.int64)


def _join(rows: Sequence[tuple[int, bytes | None]]) -> JoinedTerms:
    present = [(vector_id, _unpack(terms)) for vector_id, terms in rows if terms is not None]
    parts = [(terms, len(terms) // _BYTES_A_TERM) for _, terms in present]
    return JoinedTerms(
        _ids(present),
        np.frombuffer(b"".join([content[: 4 * n] for content, n in parts]), dtype="<u4"),
        np.frombuffer(b"".join([content[4 * n :] for content, n in parts]), dtype="<u2"),
        np.cumsum([n for _, n in parts], dtype=np.int64),
    )

"""The tables of the lexical index; each function works inside a transaction of the store.

terms           every term that a stored document has, and how many documents have it
document_terms  the term ids of a document, their counts and a CRC-32, and the change that put them
                there
removed_terms   documents whose terms were removed or replaced, for copies that have to catch up
term_statistics one row: how many documents there are, how often that changed, and which index it is

Searches read a copy of them, `index.lexical.segmented_index`.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Int64, UInt8, UInt32
from encoder.terms.general_words import PAIR, UNLISTED
from index.lexical.terms import QUOTE, level_of

DocumentTerms = tuple[UInt32, NDArray[np.uint16]]
"""Term ids [U], ascending, and how often the document has each of them [U]."""


class DamagedTermsError(ValueError):
    """The stored terms of the document `vector_id` are damaged."""

    def __init__(self, vector_id: int) -> None:
        super().__init__(f"the words of vector id {vector_id} are damaged")
        self.vector_id = vector_id


NO_TERMS: DocumentTerms = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint16))

_BYTES_A_TERM = 6
_BYTES_A_CHECKSUM = 4  # less than a term has, so lengths tell how many terms there are
_ANY_TERM = np.iinfo(np.uint32).max
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
    counts: NDArray[np.uint16]
    ends: Int64


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """The state of the tables.

    Attributes:
        documents: how many there are.
        changes: how often a document was added, removed or counted again.
        identity: drawn when the tables were made, so that no copy of others is taken for theirs.
    """

    documents: int
    changes: int
    identity: str


@dataclass(frozen=True, slots=True, eq=False)
class InsertedTerms:
    """What one call of `insert_terms` inserted: all that changed since `before`.

    A copy of the state before it need not read that again.

    Attributes:
        before: the state of the tables before it.
        documents: the terms of the documents, ascending by vector id.
        new: the ids of the terms that no document had.
    """

    before: TermStatistics
    documents: JoinedTerms
    new: Mapping[str, int]

    def levels(self) -> tuple[Int64, UInt8]:
        """Return the ids [N] of the new terms, and their general levels [N]."""
        ids = np.fromiter(self.new.values(), np.int64, len(self.new))
        return ids, np.fromiter(map(level_of, self.new), np.uint8, len(self.new))


LEXICAL_SCHEMA = (
    """
CREATE TABLE terms (
    term_id INTEGER PRIMARY KEY AUTOINCREMENT,
    term TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL
)""",
    """
CREATE TABLE document_terms (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    change INTEGER NOT NULL,
    terms BLOB NOT NULL
)""",
    "CREATE INDEX document_terms_by_change ON document_terms (change)",
    """
CREATE TABLE removed_terms (
    vector_id INTEGER PRIMARY KEY,
    change INTEGER NOT NULL
)""",
    "CREATE INDEX removed_terms_by_change ON removed_terms (change)",
    """
CREATE TABLE term_statistics (
    documents INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    identity TEXT NOT NULL
)""",
    "INSERT INTO term_statistics VALUES (0, 0, lower(hex(randomblob(16))))",
)
LEXICAL_TABLES = ("terms", "document_terms", "removed_terms", "term_statistics")

_INSERT_TERM = """
INSERT INTO terms (term, documents) VALUES (?, ?)"""
_COUNT_TERM = """
UPDATE terms SET documents = documents + ? WHERE term_id = ?"""
_DROP_TERM = """
DELETE FROM terms WHERE term_id = ? AND documents <= 0"""
_TERM_IDS = """
SELECT term, term_id FROM terms WHERE term IN (SELECT value FROM json_each(?))"""
_INSERT_DOCUMENT_TERMS = """
INSERT INTO document_terms (vector_id, change, terms) VALUES (?, ?, ?)"""
_REMOVE_DOCUMENT_TERMS = """
DELETE FROM document_terms WHERE vector_id = ?"""
_LOG_REMOVAL = """
INSERT OR REPLACE INTO removed_terms (vector_id, change) VALUES (?, ?)"""
_ADDED_SINCE = """
SELECT vector_id, terms FROM document_terms WHERE vector_id IN (
    SELECT vector_id FROM document_terms WHERE change > ?
) ORDER BY vector_id"""
_REMOVED_SINCE = """
SELECT vector_id FROM removed_terms WHERE change > ?"""
_FORGET_REMOVALS = """
DELETE FROM removed_terms WHERE change <= ?"""
_PAIRS_AFTER = """
SELECT term_id FROM terms WHERE term_id > ? AND instr(term, ' ') AND substr(term, 1, 1) != ?"""
_WORDS_AFTER = """
SELECT term_id, term FROM terms WHERE term_id > ? AND NOT instr(term, ' ')"""
_DOCUMENT_TERMS = """
SELECT vector_id, terms FROM document_terms
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""
STATISTICS = """
SELECT documents, changes, identity FROM term_statistics"""
_COUNT_CHANGE = """
UPDATE term_statistics SET documents = documents + ?, changes = changes + ?"""


def insert_terms(
    connection: sqlite3.Connection, counted: Sequence[tuple[int, Mapping[str, int]]]
) -> InsertedTerms:
    """Insert the terms of new documents, given as vector ids and counts of terms."""
    documents = Counter(term for _, counts in counted for term in counts)
    term_ids = find_term_ids(connection, documents)
    new = [(term, n) for term, n in documents.items() if term not in term_ids]
    known = [(documents[term], term_id) for term, term_id in term_ids.items()]
    connection.executemany(_COUNT_TERM, known)
    connection.executemany(_INSERT_TERM, new)
    new_ids = find_term_ids(connection, (term for term, _ in new))
    term_ids |= new_ids
    before = read_statistics(connection)
    change = before.changes + len(counted)
    packed = [
        (
            n,
            _pack(
                n, sorted((term_ids[term], min(count, MAX_COUNT)) for term, count in counts.items())
            ),
        )
        for n, counts in counted
    ]
    connection.executemany(_INSERT_DOCUMENT_TERMS, [(n, change, terms) for n, terms in packed])
    connection.execute(_COUNT_CHANGE, (len(counted), len(counted)))
    return InsertedTerms(before, _join(sorted(packed)), new_ids)


def replace_terms(
    connection: sqlite3.Connection, counted: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Replace the terms of stored documents, given as vector ids and counts of terms."""
    remove_terms(connection, [vector_id for vector_id, _ in counted])
    insert_terms(connection, counted)


def remove_terms(connection: sqlite3.Connection, vector_ids: Sequence[int]) -> None:
    """Remove the terms of documents."""
    documents = Counter[int]()
    removed = read_document_terms(connection, vector_ids)
    change = read_statistics(connection).changes + len(removed)
    for vector_id, (term_ids, _) in removed.items():
        documents.update(term_ids.tolist())
        connection.execute(_LOG_REMOVAL, (vector_id, change))
    connection.executemany(_COUNT_TERM, [(-n, term_id) for term_id, n in documents.items()])
    connection.executemany(_DROP_TERM, [(term_id,) for term_id in documents])
    connection.executemany(_REMOVE_DOCUMENT_TERMS, [(vector_id,) for vector_id in removed])
    connection.execute(_COUNT_CHANGE, (-len(removed), len(removed)))


def read_document_terms(
    connection: sqlite3.Connection, vector_ids: Iterable[int]
) -> dict[int, DocumentTerms]:
    """Return the terms of these documents; missing ones are absent."""
    id_list = json.dumps([int(vector_id) for vector_id in vector_ids])
    rows = connection.execute(_DOCUMENT_TERMS, (id_list,))
    return {vector_id: _unpack(vector_id, terms) for vector_id, terms in rows}


def read_statistics(connection: sqlite3.Connection) -> TermStatistics:
    """Return the state of the tables."""
    return TermStatistics(*connection.execute(STATISTICS).fetchone())


@dataclass(frozen=True, slots=True)
class AddedTerms:
    """The terms of documents that were added, and the vector ids of those with damaged rows."""

    documents: JoinedTerms
    damaged: tuple[int, ...]


def read_added(
    connection: sqlite3.Connection, since: int, last: int, most: int
) -> Iterator[AddedTerms]:
    """Yield the terms of the documents added since a change, some documents at a time.

    Args:
        connection: to read from.
        since: the change.
        last: the highest id of a term.
        most: no more documents are added to those that have this many terms together.
    """
    some: list[tuple[int, bytes]] = []
    damaged: list[int] = []
    size = 0
    for vector_id, terms in connection.execute(_ADDED_SINCE, (since,)):
        if not _is_sound(vector_id, terms, last):
            damaged.append(vector_id)
            continue
        some.append((vector_id, terms))
        size += len(terms) // _BYTES_A_TERM
        if size >= most:
            yield AddedTerms(_join(some), ())
            some, size = [], 0
    if some or damaged:
        yield AddedTerms(_join(some), tuple(damaged))


def read_removed(connection: sqlite3.Connection, since: int) -> Int64:
    """Return the documents Int64[N] whose terms were removed or replaced since a change."""
    return np.array(connection.execute(_REMOVED_SINCE, (since,)).fetchall(), np.int64).reshape(-1)


def forget_removed(connection: sqlite3.Connection, until: int) -> None:
    """Forget the removals that no copy of this change or later needs."""
    connection.execute(_FORGET_REMOVALS, (until,))


def read_last_term(connection: sqlite3.Connection) -> int:
    """Return the highest id of a term; -1 where there is none."""
    return int(connection.execute("SELECT coalesce(max(term_id), -1) FROM terms").fetchone()[0])


def read_levels(connection: sqlite3.Connection, after: int) -> tuple[Int64, UInt8]:
    """Return the ids Int64[N] above `after` of pairs and listed words, and their levels [N]."""
    levels = [(n, PAIR) for (n,) in connection.execute(_PAIRS_AFTER, (after, QUOTE))]
    words = connection.execute(_WORDS_AFTER, (after,))
    levels += ((n, level) for n, word in words if (level := level_of(word)) != UNLISTED)
    table = np.array(levels, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1].astype(np.uint8)


def find_term_ids(connection: sqlite3.Connection, terms: Iterable[str]) -> dict[str, int]:
    """Return the ids of these terms; unknown ones are absent."""
    # Sorted, since that is the order of the index on the terms.
    return dict(connection.execute(_TERM_IDS, (json.dumps(sorted(terms)),)))


def _pack(vector_id: int, rows: Sequence[tuple[int, int]]) -> bytes:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    terms = table[:, 0].astype("<u4").tobytes() + table[:, 1].astype("<u2").tobytes()
    return terms + _checksum(vector_id, terms)


def _checksum(vector_id: int, terms: bytes) -> bytes:
    return crc32(terms, vector_id & 0xFFFFFFFF).to_bytes(_BYTES_A_CHECKSUM, "little")


def _is_sound(vector_id: int, terms: object, last: int) -> bool:
    if not isinstance(terms, bytes) or len(terms) % _BYTES_A_TERM != _BYTES_A_CHECKSUM:
        return False
    if _checksum(vector_id, terms[:-_BYTES_A_CHECKSUM]) != terms[-_BYTES_A_CHECKSUM:]:
        return False
    ids = np.frombuffer(terms, dtype="<u4", count=len(terms) // _BYTES_A_TERM)
    return int(ids.max(initial=0)) <= max(last, 0)


def _join(rows: Sequence[tuple[int, bytes]]) -> JoinedTerms:
    numbers = [len(terms) // _BYTES_A_TERM for _, terms in rows]
    both = [
        (terms[:-_BYTES_A_CHECKSUM], 4 * number)
        for (_, terms), number in zip(rows, numbers, strict=True)
    ]
    return JoinedTerms(
        np.array([vector_id for vector_id, _ in rows], dtype=np.int64),
        np.frombuffer(b"".join([terms[:end] for terms, end in both]), dtype="<u4"),
        np.frombuffer(b"".join([terms[end:] for terms, end in both]), dtype="<u2"),
        np.cumsum(numbers, dtype=np.int64),
    )


def _unpack(vector_id: int, terms: object) -> DocumentTerms:
    if not isinstance(terms, bytes) or not _is_sound(vector_id, terms, _ANY_TERM):
        raise DamagedTermsError(vector_id)
    number = len(terms) // _BYTES_A_TERM
    term_ids = np.frombuffer(terms, dtype="<u4", count=number)
    return term_ids, np.frombuffer(terms, dtype="<u2", count=number, offset=4 * number)

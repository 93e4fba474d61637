"""The tables of the lexical index; each function works inside a transaction of the store.

terms           every term that a stored document has, and how many documents have it
document_terms  the term ids of a document and their counts, from which it is scored
postings        FTS5, term id -> documents, to find candidates; it keeps no text and no positions
term_statistics one row: how many documents there are, and how often that changed

FTS5 indexes term ids instead of words, so that the tokens of query and document agree by
construction and no text is ever parsed as query syntax.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Int64, UInt32

DocumentTerms = tuple[UInt32, NDArray[np.uint16]]
"""Term ids [U], ascending, and how often the document has each of them [U]."""

NO_TERMS: DocumentTerms = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint16))

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


# A contentless FTS5 table deletes a row if given its content, which `document_terms` has.
# (`contentless_delete` needs SQLite 3.43, and Python is often built with an older one.)
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
    terms BLOB NOT NULL
)""",
    """
CREATE VIRTUAL TABLE postings USING fts5(
    term_ids, content = '', columnsize = 0, detail = none, tokenize = 'ascii'
)""",
    """
CREATE TABLE term_statistics (
    documents INTEGER NOT NULL,
    changes INTEGER NOT NULL
)""",
    "INSERT INTO term_statistics VALUES (0, 0)",
)
LEXICAL_TABLES = ("terms", "document_terms", "postings", "term_statistics")

_INSERT_TERM = """
INSERT INTO terms (term, documents) VALUES (?, ?)"""
_COUNT_TERM = """
UPDATE terms SET documents = documents + ? WHERE term_id = ?"""
_DROP_TERM = """
DELETE FROM terms WHERE term_id = ? AND documents <= 0"""
_TERM_IDS = """
SELECT term, term_id FROM terms WHERE term IN (SELECT value FROM json_each(?))"""
_INSERT_DOCUMENT_TERMS = """
INSERT INTO document_terms (vector_id, terms) VALUES (?, ?)"""
_REMOVE_DOCUMENT_TERMS = """
DELETE FROM document_terms WHERE vector_id = ?"""
_INSERT_POSTINGS = """
INSERT INTO postings (rowid, term_ids) VALUES (?, ?)"""
_REMOVE_POSTINGS = """
INSERT INTO postings (postings, rowid, term_ids) VALUES ('delete', ?, ?)"""
_DOCUMENT_TERMS = """
SELECT vector_id, terms FROM document_terms
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""
_STATISTICS = """
SELECT documents, changes FROM term_statistics"""
_COUNT_CHANGE = """
UPDATE term_statistics SET documents = documents + ?, changes = changes + ?"""


def insert_terms(
    connection: sqlite3.Connection, counted: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Insert the terms of new documents, given as vector ids and counts of terms."""
    documents = Counter(term for _, counts in counted for term in counts)
    term_ids = find_term_ids(connection, documents)
    new = [(term, n) for term, n in documents.items() if term not in term_ids]
    known = [(documents[term], term_id) for term, term_id in term_ids.items()]
    connection.executemany(_COUNT_TERM, known)
    connection.executemany(_INSERT_TERM, new)
    term_ids |= find_term_ids(connection, (term for term, _ in new))
    for vector_id, counts in counted:
        rows = sorted((term_ids[term], min(n, MAX_COUNT)) for term, n in counts.items())
        connection.execute(_INSERT_DOCUMENT_TERMS, (vector_id, _pack(rows)))
        connection.execute(_INSERT_POSTINGS, (vector_id, _postings(one for one, _ in rows)))
    connection.execute(_COUNT_CHANGE, (len(counted), len(counted)))


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
    for vector_id, (term_ids, _) in removed.items():
        documents.update(term_ids.tolist())
        connection.execute(_REMOVE_POSTINGS, (vector_id, _postings(term_ids.tolist())))
    connection.executemany(_COUNT_TERM, [(-n, term_id) for term_id, n in documents.items()])
    connection.executemany(_DROP_TERM, [(term_id,) for term_id in documents])
    connection.executemany(_REMOVE_DOCUMENT_TERMS, [(one,) for one in removed])
    connection.execute(_COUNT_CHANGE, (-len(removed), len(removed)))


def read_document_terms(
    connection: sqlite3.Connection, vector_ids: Iterable[int]
) -> dict[int, DocumentTerms]:
    """Return the terms of these documents; missing ones are absent.

    Raises:
        ValueError: a row is damaged.
    """
    return {vector_id: _unpack(terms) for vector_id, terms in _rows(connection, vector_ids)}


def read_joined_terms(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> JoinedTerms:
    """Return the terms of these documents in a few arrays; missing ones are absent.

    Raises:
        ValueError: a row is damaged.
    """
    rows = _rows(connection, vector_ids)
    numbers = [_number_of_terms(terms) for _, terms in rows]
    ids = b"".join([terms[: 4 * number] for (_, terms), number in zip(rows, numbers, strict=True)])
    counts = b"".join(
        [terms[4 * number :] for (_, terms), number in zip(rows, numbers, strict=True)]
    )
    return JoinedTerms(
        np.array([vector_id for vector_id, _ in rows], dtype=np.int64),
        np.frombuffer(ids, dtype="<u4"),
        np.frombuffer(counts, dtype="<u2"),
        np.cumsum(numbers, dtype=np.int64),
    )


def read_statistics(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many documents there are, and how often that changed."""
    number, changes = connection.execute(_STATISTICS).fetchone()
    return int(number), int(changes)


def find_term_ids(connection: sqlite3.Connection, terms: Iterable[str]) -> dict[str, int]:
    """Return the ids of these terms; unknown ones are absent."""
    # Sorted, since that is the order of the index on the terms.
    return dict(connection.execute(_TERM_IDS, (json.dumps(sorted(terms)),)))


def _postings(term_ids: Iterable[int]) -> str:
    return " ".join(map(str, term_ids))


def _pack(rows: Sequence[tuple[int, int]]) -> bytes:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].astype("<u4").tobytes() + table[:, 1].astype("<u2").tobytes()


def _rows(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> Sequence[tuple[int, bytes]]:
    id_list = json.dumps([int(one) for one in vector_ids])
    return connection.execute(_DOCUMENT_TERMS, (id_list,)).fetchall()


def _number_of_terms(terms: bytes) -> int:
    number, rest = divmod(len(terms), 6)
    if rest:
        raise ValueError("the terms of a document are damaged: their length is wrong")
    return number


def _unpack(terms: bytes) -> DocumentTerms:
    number = _number_of_terms(terms)
    term_ids = np.frombuffer(terms, dtype="<u4", count=number)
    return term_ids, np.frombuffer(terms, dtype="<u2", offset=4 * number)

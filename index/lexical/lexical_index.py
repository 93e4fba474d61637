"""The lexical index: which documents share the distinctive words of a long text.

It is part of the store's database and changes in the same transactions as the documents. A search
has two steps: the heaviest terms of the query fetch candidates through FTS5, by the sum of the
weights of the terms that they share; then the candidates are scored exactly, by the cosine over all
terms.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.terms.title_matcher import TitleMatcher
from index.errors import StoreError
from index.id_set import IdSet
from index.lexical.scoring import (
    LexicalQuery,
    TermRows,
    TermWeight,
    cosines,
    heaviest_terms,
    inverse_document_frequencies,
    join_rows,
    shared_terms,
    weigh_query,
    weigh_rows,
)
from index.lexical.tables import read_document_terms, read_joined_terms
from index.lexical.terms import count_terms_and_titles, known_titles, with_titles
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections

CANDIDATES = 200  # scored exactly; on validation 300 found no more than 100 did, within 0.003
_ROWS_A_CALL = 500
MAX_DRIFT = 0.01  # share of the documents that may change before all of them are read again

# The list comes first: as the operand of IN, it would be copied into an index of its own.
_FOUND_TERMS = """
SELECT asked.key, term_id, documents
FROM json_each(?) AS asked CROSS JOIN terms ON term = asked.value"""
_ALL_FREQUENCIES = """
SELECT term_id, documents FROM terms WHERE documents >= 2"""
_TITLES = """
SELECT title FROM documents"""
_STATISTICS = """
SELECT documents, changes FROM term_statistics"""
_SELECTED = "vector_id < ? AND vector_id {inverted} IN (SELECT value FROM json_each(?))"
_IDS_AFTER = """
SELECT vector_id FROM document_terms WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
_OF_A_TERM = "SELECT rowid AS vector_id, ? AS weight FROM postings WHERE postings MATCH ?"


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """Documents with their lexical scores Float32[N] under their vector ids Int64[N]."""

    vector_ids: Int64
    scores: Float32


@dataclass(frozen=True, slots=True)
class _Frequencies:
    """Inverse document frequencies Float32[T] by term id, as of `changes` of the store.

    A term of only one document weighs nothing here: it is shared with no other, and misspelt words
    would lengthen the vectors of long documents.
    """

    idf: Float32
    changes: int


class LexicalIndex:
    """The lexical index of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, path: Path) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.lexical` is one."""
        self._connections = connections
        self._path = path
        self._refreshing = threading.Lock()
        self._frequencies = _Frequencies(np.zeros(0, dtype=np.float32), -1)
        self._reading_titles = threading.Lock()
        self._titles = known_titles(())
        self._titles_of = -1  # changes of the store as of which they were read

    @property
    def changes(self) -> int:
        """How many times a document was added, removed or counted again."""
        with self._connections.reading() as connection:
            return _statistics(connection)[1]

    def titles(self, connection: sqlite3.Connection) -> TitleMatcher:
        """Return the titles of the stored documents, read again when too many changed.

        Some may belong to removed documents, which does no harm.

        Raises:
            StoreError: the file cannot be read.
        """
        number, changes = _statistics(connection)
        with self._reading_titles:
            if self._titles_of < 0 or abs(changes - self._titles_of) > MAX_DRIFT * number:
                self._titles = known_titles(row[0] for row in connection.execute(_TITLES))
                self._titles_of = changes
            return self._titles

    def remember_titles(self, titles: Sequence[str], inserted: int) -> None:
        """Add the titles of documents that were put, as reading all of them again costs seconds.

        Args:
            titles: of all documents that were put.
            inserted: how many of these documents are new, or have a new text.
        """
        with self._reading_titles:
            if self._titles_of >= 0:
                self._titles = with_titles(self._titles, titles)
                self._titles_of += inserted

    def read(self, text: str, *, title: str = "", stored: bool = False) -> LexicalQuery:
        """Reduce a text to the terms that stored documents have.

        Args:
            text: any text; without such a term the query finds nothing.
            title: of the text, if it has one.
            stored: the text is that of a stored document, so a term of only one document is
                shared with no other.

        Raises:
            StoreError: the file cannot be read.
        """
        with self._connections.reading() as connection:
            titles = self.titles(connection)
        counts = count_terms_and_titles(text, titles, title)
        with self._connections.reading() as connection:
            terms = sorted(counts)  # the order of the index on the terms
            rows = connection.execute(_FOUND_TERMS, (json.dumps(terms),)).fetchall()
            number, _ = _statistics(connection)
        found = {terms[row]: (term_id, documents) for row, term_id, documents in rows}
        return weigh_query(counts, found, number, least=2 if stored else 1)

    def search(self, query: LexicalQuery, k: int, *, among: IdSet | None = None) -> LexicalMatches:
        """Find the k documents of the highest score, best first; fewer if fewer share a term.

        Args:
            query: the query.
            k: how many.
            among: find no other documents.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        with self._connections.reading() as connection:
            candidates = _candidates(connection, query, max(k, CANDIDATES), among)
            scores = self._score(connection, query, candidates)
        return _best(candidates, scores, k)

    def search_all(self, query: LexicalQuery, k: int, among: IdSet) -> LexicalMatches:
        """Find k selected documents that share any term, however common, by reading all of them.

        For selections of which `search`, by the heaviest terms, finds too few. Documents are read
        in parts.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        best = LexicalMatches(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        with self._connections.reading() as connection:
            for ids in _parts(connection, among):
                scores = self._score(connection, query, ids)
                best = _best(
                    np.concatenate([best.vector_ids, ids]),
                    np.concatenate([best.scores, scores]),
                    k,
                )
        return best

    def score(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        with self._connections.reading() as connection:
            return self._score(connection, query, vector_ids)

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as `score` compares them when one is the query.

        Missing ones have no terms.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        none = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint16))
        parts = []
        progress.started("reading words", len(vector_ids))
        with self._connections.reading() as connection:
            idf = self._idf(connection)
            for start in range(0, max(len(vector_ids), 1), _ROWS_A_CALL):
                some = vector_ids[start : start + _ROWS_A_CALL].tolist()
                with self._naming_damage():
                    documents = read_document_terms(connection, some)
                parts.append(weigh_rows([documents.get(one, none) for one in some], idf))
                progress.advanced(len(some))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        with self._connections.reading() as connection, self._naming_damage():
            documents = read_document_terms(connection, vector_ids)
        return {one: shared_terms(query, terms, limit) for one, terms in documents.items()}

    def _score(
        self, connection: sqlite3.Connection, query: LexicalQuery, vector_ids: Int64
    ) -> Float32:
        with self._naming_damage():
            documents = read_joined_terms(connection, vector_ids.tolist())
        if not len(documents.vector_ids):
            return np.zeros(len(vector_ids), dtype=np.float32)
        scores = cosines(query, documents, self._idf(connection))
        rows = np.searchsorted(documents.vector_ids, vector_ids)
        rows = np.minimum(rows, len(scores) - 1)
        return np.where(documents.vector_ids[rows] == vector_ids, scores[rows], np.float32(0.0))

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Raise a `StoreError` that names the file where the terms of a document are damaged."""
        try:
            yield
        except ValueError as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _idf(self, connection: sqlite3.Connection) -> Float32:
        """Return the frequencies of all terms, read again when too many documents changed."""
        number, changes = _statistics(connection)
        with self._refreshing:
            drift = abs(changes - self._frequencies.changes)
            if self._frequencies.changes < 0 or drift > MAX_DRIFT * number:
                self._frequencies = _Frequencies(_all_idf(connection, number), changes)
            return self._frequencies.idf


def _parts(connection: sqlite3.Connection, among: IdSet) -> Iterator[Int64]:
    """Yield the ids of a selection in parts; listed ids may belong to removed documents."""
    if not among.inverted:
        for start in range(0, len(among.ids), _ROWS_A_CALL):
            yield among.ids[start : start + _ROWS_A_CALL]
        return
    last = -1
    while rows := connection.execute(_IDS_AFTER, (last, _ROWS_A_CALL)).fetchall():
        last = rows[-1][0]
        ids = np.array(rows, dtype=np.int64).reshape(-1)
        yield ids[among.contains(ids)]


def _best(vector_ids: Int64, scores: Float32, k: int) -> LexicalMatches:
    order = np.lexsort((vector_ids, -scores))[:k]
    order = order[scores[order] > 0]
    return LexicalMatches(vector_ids[order], scores[order])


def _candidates(
    connection: sqlite3.Connection, query: LexicalQuery, k: int, among: IdSet | None
) -> Int64:
    chosen = heaviest_terms(query)
    if not chosen:
        return np.zeros(0, dtype=np.int64)
    parts = " UNION ALL ".join([_OF_A_TERM] * len(chosen))
    values: list[float | str] = []
    for position in chosen:
        values += [
            float(query.weights[position] * query.idf[position]),
            f'"{query.term_ids[position]}"',
        ]
    selected = "TRUE"
    if among is not None:
        selected = _SELECTED.format(inverted="NOT" if among.inverted else "")
        values += [among.end, json.dumps(among.ids.tolist())]
    rows = connection.execute(
        f"SELECT vector_id FROM ({parts}) "  # noqa: S608 (constants only)
        f"WHERE {selected} GROUP BY vector_id "
        "ORDER BY sum(weight) DESC, vector_id LIMIT ?",
        (*values, k),
    )
    return np.array([row[0] for row in rows], dtype=np.int64)


def _all_idf(connection: sqlite3.Connection, number: int) -> Float32:
    rows = np.array(connection.execute(_ALL_FREQUENCIES).fetchall(), dtype=np.int64)
    rows = rows.reshape(-1, 2)
    idf = np.zeros(int(rows[:, 0].max(initial=-1)) + 1, dtype=np.float32)
    idf[rows[:, 0]] = inverse_document_frequencies(rows[:, 1], number)
    return idf


def _statistics(connection: sqlite3.Connection) -> tuple[int, int]:
    number, changes = connection.execute(_STATISTICS).fetchone()
    return int(number), int(changes)

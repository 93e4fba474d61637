"""The lexical index: which documents share the distinctive words of a long text.

It is part of the store's database and changes in the same transactions as the documents. A search
has two steps: the heaviest terms of the query fetch candidates through FTS5, by the sum of the
weights of the terms that they share; then the candidates are scored exactly, by the cosine over all
terms.
"""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.terms.title_matcher import TitleMatcher
from index.errors import StoreError
from index.id_set import IdSet
from index.lexical.frequencies import MAX_DRIFT, FrequencyCache
from index.lexical.scoring import (
    LexicalQuery,
    QueryTerms,
    TermRows,
    TermWeight,
    cosines,
    heaviest_terms,
    join_rows,
    shared_terms,
    weigh_query,
    weigh_rows,
)
from index.lexical.tables import (
    NO_TERMS,
    read_document_terms,
    read_joined_terms,
    read_statistics,
)
from index.lexical.terms import (
    QUOTE,
    count_terms_and_titles,
    is_pair,
    known_titles,
    with_titles,
)
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections

CANDIDATES = 200  # scored exactly; on validation 300 found no more than 100 did, within 0.003
_ROWS_A_CALL = 500

# The list comes first: as the operand of IN, it would be copied into an index of its own.
_FOUND_TERMS = """
SELECT asked.key, term_id, documents
FROM json_each(?) AS asked CROSS JOIN terms ON term = asked.value"""
_TERMS = """
SELECT asked.key, documents, instr(term, ' ') AND substr(term, 1, 1) != ?
FROM json_each(?) AS asked CROSS JOIN terms ON term_id = asked.value"""
_WORDS = """
SELECT term_id, term FROM terms WHERE term_id IN (SELECT value FROM json_each(?))"""
_TITLES = """
SELECT title FROM documents"""
_SELECTED = "vector_id < ? AND vector_id {inverted} IN (SELECT value FROM json_each(?))"
_IDS_AFTER = """
SELECT vector_id FROM document_terms WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
_OF_A_TERM = "SELECT rowid AS vector_id, ? AS weight FROM postings WHERE postings MATCH ?"


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """Documents with their lexical scores Float32[N] under their vector ids Int64[N]."""

    vector_ids: Int64
    scores: Float32


class LexicalIndex:
    """The lexical index of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, path: Path) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.lexical` is one."""
        self._connections = connections
        self._path = path
        self._frequencies = FrequencyCache()
        self._reading_titles = threading.Lock()
        self._titles = known_titles(())
        self._titles_of = -1  # changes of the store as of which they were read

    @property
    def changes(self) -> int:
        """How many times a document was added, removed or counted again."""
        with self._connections.reading() as connection:
            return read_statistics(connection)[1]

    def titles(self, connection: sqlite3.Connection) -> TitleMatcher:
        """Return the titles of the stored documents, read again when too many changed.

        Some may belong to removed documents, which does no harm.

        Raises:
            StoreError: the file cannot be read.
        """
        number, changes = read_statistics(connection)
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

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to the terms that stored documents have.

        Args:
            text: any text; without such a term the query finds nothing.
            title: of the text, if it has one.

        Raises:
            StoreError: the file cannot be read.
        """
        with self._connections.reading() as connection:
            titles = self.titles(connection)
        counts = count_terms_and_titles(text, titles, title)
        terms = sorted(counts)  # the order of the index on the terms
        with self._connections.reading() as connection:
            rows = connection.execute(_FOUND_TERMS, (json.dumps(terms),)).fetchall()
            number, _ = read_statistics(connection)
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        found = [terms[row] for row in table[:, 0].tolist()]
        pairs = np.array([is_pair(term) for term in found], dtype=np.bool_)
        own = np.array([counts[term] for term in found], dtype=np.int64)
        return weigh_query(QueryTerms(table[:, 1], own, table[:, 2], pairs), number, least=1)

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document that others share; none if it is not there.

        Raises:
            StoreError: the file cannot be read, or the terms of the document are damaged.
        """
        with self._connections.reading() as connection:
            with self._naming_damage():
                documents = read_document_terms(connection, [vector_id])
            term_ids, counts = documents.get(vector_id, NO_TERMS)
            asked = (QUOTE, json.dumps(term_ids.tolist()))
            rows = connection.execute(_TERMS, asked).fetchall()
            number, _ = read_statistics(connection)
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        own = table[:, 0]
        terms = QueryTerms(
            term_ids[own].astype(np.int64),
            counts[own].astype(np.int64),
            table[:, 1],
            table[:, 2].astype(np.bool_),
        )
        return weigh_query(terms, number, least=2)

    def forget_norms(self, vector_ids: Iterable[int]) -> None:
        """Forget what follows from the terms of documents whose terms were replaced."""
        self._frequencies.forget_norms(vector_ids)

    def candidates(self, query: LexicalQuery, k: int, among: IdSet | None = None) -> Int64:
        """Return k or more documents that share the heaviest terms of a query, Int64[N], ascending.

        Fewer if fewer share one.

        Args:
            query: the query.
            k: how many.
            among: find no other documents.

        Raises:
            StoreError: the file cannot be read.
        """
        with self._connections.reading() as connection:
            return np.sort(_candidates(connection, query, max(k, CANDIDATES), among))

    def search(self, query: LexicalQuery, k: int, *, among: IdSet | None = None) -> LexicalMatches:
        """Find the k documents of the highest score, best first; fewer if fewer share a term.

        Args:
            query: the query.
            k: how many.
            among: find no other documents.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        with self._reading() as reading:
            candidates = _candidates(reading.connection, query, max(k, CANDIDATES), among)
            scores = self._score(reading, query, candidates)
        return _best(candidates, scores, k)

    def search_all(self, query: LexicalQuery, k: int, among: IdSet) -> LexicalMatches:
        """Find k selected documents that share any term, however common, by reading all of them.

        For selections of which `search`, by the heaviest terms, finds too few. Documents are read
        in parts.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        best = LexicalMatches(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        with self._reading() as reading:
            for ids in _parts(reading.connection, among):
                scores = self._score(reading, query, ids)
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
        with self._reading() as reading:
            return self._score(reading, query, vector_ids)

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as `score` compares them when one is the query.

        Missing ones have no terms.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        parts = []
        progress.started("reading words", len(vector_ids))
        with self._connections.reading() as connection:
            idf = self._frequencies.current(connection).idf
            for start in range(0, max(len(vector_ids), 1), _ROWS_A_CALL):
                some = vector_ids[start : start + _ROWS_A_CALL].tolist()
                with self._naming_damage():
                    documents = read_document_terms(connection, some)
                parts.append(weigh_rows([documents.get(one, NO_TERMS) for one in some], idf))
                progress.advanced(len(some))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score.

        Raises:
            StoreError: the file cannot be read, or the terms of a document are damaged.
        """
        with self._connections.reading() as connection:
            with self._naming_damage():
                documents = read_document_terms(connection, vector_ids)
            shared = {one: shared_terms(query, own, limit) for one, own in documents.items()}
            asked = {term_id for own in shared.values() for term_id, _ in own}
            words = dict(connection.execute(_WORDS, (json.dumps(sorted(asked)),)))
        return {
            one: tuple(TermWeight(words[n], weight) for n, weight in own if n in words)
            for one, own in shared.items()
        }

    @contextmanager
    def _reading(self) -> Iterator["_Reading"]:
        replacements = self._frequencies.replacements  # before the transaction
        with self._connections.reading() as connection:
            yield _Reading(connection, replacements)

    def _score(self, reading: "_Reading", query: LexicalQuery, vector_ids: Int64) -> Float32:
        with self._naming_damage():
            documents = read_joined_terms(reading.connection, vector_ids.tolist())
        if not len(documents.vector_ids):
            return np.zeros(len(vector_ids), dtype=np.float32)
        frequencies = self._frequencies.current(reading.connection)
        squares = self._frequencies.squared_norms(documents, frequencies, reading.replacements)
        scores = cosines(query, documents, squares, frequencies.idf)
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


@dataclass(frozen=True, slots=True)
class _Reading:
    """A read transaction, and how often terms had been replaced before it began."""

    connection: sqlite3.Connection
    replacements: int


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

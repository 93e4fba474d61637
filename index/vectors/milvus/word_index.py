"""The words of a store, searched in a Milvus; `index.store.ports.StoredWords`.

Milvus finds candidates among all documents (`index.vectors.milvus.word_collection`). The store is
the truth: a text is weighed by its document frequencies, and the candidates are scored, exactly, by
the counts that it has of their terms. Of the words this process holds the inverse document
frequency of each term, with which norms are computed: 4 bytes a term, and nothing for a document.
"""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Float64, Int64, UInt32
from encoder.terms.title_matcher import TitleMatcher
from index.errors import IndexingError, VectorEngineError
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies
from index.lexical.lexical_index import (
    CANDIDATES,
    LexicalIndex,
    LexicalMatches,
    TermNames,
    best_matches,
    named_terms,
)
from index.lexical.scoring import (
    LexicalQuery,
    QueryTerms,
    TermRows,
    TermWeight,
    candidate_terms,
    cosines,
    join_rows,
    squared_norms,
    weigh_query,
    weigh_rows,
)
from index.lexical.tables import (
    NO_TERMS,
    InsertedTerms,
    JoinedTerms,
    TermStatistics,
    find_term_ids,
    read_all_frequencies,
    read_changed,
    read_frequencies,
    read_statistics,
    read_stored_terms,
)
from index.lexical.terms import count_terms_and_titles
from index.lexical.title_refresh import KnownTitles
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections
from index.store.ports import StoredWords
from index.vectors.milvus.word_follower import WordFollower
from index.vectors.milvus.words_engine import WordsEngine

MAX_DRIFT = 0.05  # share of the documents that may change before norms follow
ALWAYS_RENEWED = 100  # documents of which a search reads the frequencies after every change
RENEWED_BY_SEARCH = 1_000  # and after such a share of changes; for more, maintenance does
_DOCUMENTS_A_READ = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NormWeights:
    """The inverse document frequencies by which norms are computed, as of `changes` of a store.

    Attributes:
        idf: Float32[T] by term id; 0 for a term of one document.
        number: how many documents there were.
        changes: of the store.
    """

    idf: Float32 = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    number: int = 0
    changes: int = -1

    def of(self, term_ids: UInt32 | Int64) -> Float32:
        """Return those of these terms [K]; 0 for terms that came later."""
        if not len(self.idf):
            return np.zeros(len(term_ids), dtype=np.float32)
        found: Float32 = self.idf.take(term_ids, mode="clip")
        found[term_ids >= len(self.idf)] = 0.0
        return found

    def serve(self, now: TermStatistics) -> bool:
        """Return whether norms may still be computed by them."""
        drift = abs(now.changes - self.changes)
        return self.changes >= 0 and drift <= MAX_DRIFT * max(0, now.documents - ALWAYS_RENEWED)


class MilvusWordIndex:
    """The words of an open store in a Milvus. Safe to use from many threads."""

    def __init__(
        self, connections: SQLiteConnections, engine: WordsEngine, *, read_only: bool
    ) -> None:
        """Use the connections of a store; nothing is opened yet. `read_only` writes nothing."""
        self._connections = connections
        self._read_only = read_only
        self._follower = WordFollower(connections, engine, read_only=read_only)
        self._titles = KnownTitles()
        self._names = TermNames(connections)
        self._weights = NormWeights()
        self._maker: threading.Thread | None = None

    @property
    def changes(self) -> int:
        """How many times a document was added, removed or counted again."""
        return self._follower.now().changes

    def titles(self, connection: sqlite3.Connection) -> TitleMatcher:
        """Return the titles of the stored documents; see `KnownTitles.read`."""
        return self._titles.read(connection)

    def remember_titles(self, titles: Sequence[str], inserted: int) -> None:
        """Add the titles of documents that were put; see `KnownTitles.remember`."""
        self._titles.remember(titles, inserted)

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to the terms that stored documents have; see `WordIndex`."""
        with self._connections.reading() as connection:
            titles = self.titles(connection)
        counts = count_terms_and_titles(text, titles, title)
        with self._connections.reading() as connection:
            found = find_term_ids(connection, counts)
            own = np.array([counts[term] for term in found], dtype=np.int64)
            return _weighed(connection, np.array(list(found.values()), np.int64), own, least=1)

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document that others share; see `WordIndex`."""
        with self._connections.reading() as connection:
            own = read_stored_terms(connection, [vector_id]).documents
            term_ids, counts = own.term_ids.astype(np.int64), own.counts.astype(np.int64)
            return _weighed(connection, term_ids, counts, least=2)

    def candidates(self, query: LexicalQuery, k: int, among: IdSet | None = None) -> Int64:
        """Return k or more documents that share the heaviest terms; see `WordIndex`."""
        return np.sort(self._candidates(query, max(k, CANDIDATES), among))

    def search(self, query: LexicalQuery, k: int, *, among: IdSet | None = None) -> LexicalMatches:
        """Find the k documents of the highest score; see `WordIndex`."""
        found = self._candidates(query, max(k, CANDIDATES), among)
        return best_matches(found, self.score(query, found), k)

    def search_all(self, query: LexicalQuery, k: int, among: IdSet) -> LexicalMatches:
        """Find k selected documents that share any term; see `WordIndex`."""
        found = self._best(query, np.arange(len(query)), max(k, CANDIDATES), among)
        return best_matches(found, self.score(query, found), k)

    def score(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; see `WordIndex`."""
        weights = self._norm_weights()
        scores = np.zeros(len(vector_ids), dtype=np.float32)
        for start in range(0, len(vector_ids), _DOCUMENTS_A_READ):
            some = vector_ids[start : start + _DOCUMENTS_A_READ]
            documents = self._documents(some)
            squares = squared_norms(documents, weights.of)
            found = cosines(query, documents, squares, weights.of(query.term_ids))
            rows = np.searchsorted(documents.vector_ids, some)
            rows = np.minimum(rows, max(0, len(documents.vector_ids) - 1))
            there = np.isin(some, documents.vector_ids)
            scores[start : start + len(some)][there] = found[rows[there]]
        return scores

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return documents as `score` compares them when one is the query; see `StoredWords`."""
        progress.started("reading words", len(vector_ids))
        weights = self._read_weights()
        parts = []
        for start in range(0, max(len(vector_ids), 1), _DOCUMENTS_A_READ):
            some = vector_ids[start : start + _DOCUMENTS_A_READ]
            own = self._documents(some)
            bounds = zip(np.append(0, own.ends[:-1]).tolist(), own.ends.tolist(), strict=False)
            terms = [(own.term_ids[a:b], own.counts[a:b]) for a, b in bounds]
            by_id = dict(zip(own.vector_ids.tolist(), terms, strict=False))
            documents = [by_id.get(one, NO_TERMS) for one in some.tolist()]
            parts.append(weigh_rows(documents, weights.idf))
            progress.advanced(len(some))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return the terms that add most to the scores of documents; see `WordIndex`."""
        own = self._documents(np.array(vector_ids, dtype=np.int64))
        return named_terms(self._names, query, own.vector_ids.tolist(), own, limit)

    def changed(self, inserted: InsertedTerms | None = None) -> None:
        """Let searches find a change of the store; see `StoredWords`."""
        if self.building or self._read_only:
            return
        try:
            self._follower.catch_up()
        except IndexingError as error:
            _log.warning("the words in Milvus do not follow the store: %s", error)

    @property
    def building(self) -> bool:
        """Whether `make_in_background` has not ended yet: a search would wait for it."""
        return not self._follower.is_open and self._maker is not None and self._maker.is_alive()

    def make_in_background(self) -> None:
        """Begin to compare Milvus with the store, or to fill it, in a thread."""
        self._maker = threading.Thread(target=self._make, name="words", daemon=True)
        self._maker.start()

    def wait(self, seconds: float) -> None:
        """Wait for that thread, at most so long."""
        if self._maker is not None:
            self._maker.join(seconds)

    def close(self) -> None:
        """Let that thread give up, and wait for it."""
        self._follower.stop()
        if self._maker is not None:
            self._maker.join()

    @property
    def problem(self) -> str | None:
        """What Milvus failed in last; None while it works."""
        return self._follower.problem

    def unpublished(self) -> int:
        """Count the changes since `publish`."""
        return self._follower.unpublished

    def publish(self) -> None:
        """Let Milvus write the words to its disk, forget removals that it has, renew the norms.

        Raises:
            StoreError: the store cannot be read or written.
            VectorEngineError: Milvus did not confirm it.
        """
        self._follower.flush()
        self._weights = self._read_weights()

    def exists(self) -> bool:
        """Return whether Milvus has words of this store.

        Raises:
            StoreError, VectorEngineError: as `publish`.
        """
        return self._follower.exists()

    def rebuild(self) -> None:
        """Fill the collection again from the store; see `publish`."""
        self._follower.drop()
        self.publish()

    def check(self) -> None:
        """Bring Milvus to the store; after a failure, compare all of it again.

        Raises:
            StoreError, VectorEngineError: as `publish`.
        """
        self._follower.check()
        if not self._weights.serve(self._follower.now()):
            self._weights = self._read_weights()

    def _make(self) -> None:
        try:
            self._follower.catch_up()
            self._norm_weights()
        except IndexingError as error:  # the first search tries again, and answers with the error
            _log.warning("the words in Milvus could not be made: %s", error)

    def _documents(self, vector_ids: Int64) -> JoinedTerms:
        with self._connections.reading() as connection:
            return read_stored_terms(connection, vector_ids.tolist()).documents

    def _all_ids(self) -> Int64:
        with self._connections.reading() as connection:
            return read_changed(connection, -1)[0]

    def _norm_weights(self) -> NormWeights:
        """Return what norms are computed by; a search reads it again in small stores only."""
        now = self._follower.now()
        late = now.documents <= RENEWED_BY_SEARCH and not self._weights.serve(now)
        if self._weights.changes < 0 or self._weights.changes > now.changes or late:
            self._weights = self._read_weights()
        return self._weights

    def _read_weights(self) -> NormWeights:
        with self._connections.reading() as connection:
            now = read_statistics(connection)
            documents = read_all_frequencies(connection)
        idf = Frequencies(documents, now.documents, now.changes).idf(np.arange(len(documents)))
        return NormWeights(idf, now.documents, now.changes)

    def _candidates(self, query: LexicalQuery, k: int, among: IdSet | None) -> Int64:
        return self._best(query, np.array(candidate_terms(query), dtype=np.int64), k, among)

    def _best(self, query: LexicalQuery, chosen: Int64, k: int, among: IdSet | None) -> Int64:
        weights: Float64 = (query.weights[chosen] * query.idf[chosen]).astype(np.float64)
        collection = self._follower.collection()
        try:
            return collection.best(query.term_ids[chosen], weights, k, among, self._all_ids)
        except VectorEngineError as error:
            self._follower.problem = str(error)
            raise


def open_words(
    connections: SQLiteConnections, path: Path, *, engine: WordsEngine, read_only: bool
) -> StoredWords:
    """Return the words of the store at `path`, in a Milvus.

    A process that only reads, and finds none there, makes a copy in memory.

    Raises:
        StoreError: the store cannot be read.
        VectorEngineError: Milvus fails.
    """
    words = MilvusWordIndex(connections, engine, read_only=read_only)
    if read_only and not words.exists():
        return LexicalIndex(connections, path)
    return words


def _weighed(
    connection: sqlite3.Connection, term_ids: Int64, counts: Int64, *, least: int
) -> LexicalQuery:
    """Weigh the terms [U] of a text by the present frequencies; see `weigh_query`."""
    documents, pairs = read_frequencies(connection, term_ids)
    number = read_statistics(connection).documents
    return weigh_query(QueryTerms(term_ids, counts, documents, pairs), number, least)

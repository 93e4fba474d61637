"""The ports of the store: what other packages ask of it, by role.

`DocumentStore`  put, delete, read and select documents
`VectorSource`   read the vectors and their changes, for an index that holds a copy
`ChangeHistory`  how far back changes are known, and what is forgotten
`WordIndex`      the words of the documents, as a search uses them
`StoredWords`    the same, as the store and its upkeep use them

`SQLiteDocumentStore` plays the first three roles, and its `lexical` the others, in this process or
in a Milvus. `tests/contract/test_document_store.py` and `tests/contract/test_word_index.py` are
what every implementation passes. Near-duplicates and maintenance live in the same database and are
no part of the ports.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Protocol

from encoder.arrays import Float32, Int64
from encoder.terms.title_matcher import TitleMatcher
from index.id_set import IdSet
from index.lexical.lexical_index import LexicalMatches
from index.lexical.scoring import LexicalQuery, TermRows, TermWeight
from index.lexical.tables import InsertedTerms
from index.progress import Progress
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import Filter
from index.store.records import Change, DocumentSummary, EncodedDocument, StoredDocument


class DocumentStore(Protocol):
    """Documents with their vectors, by id and by vector id. Safe to use from many threads.

    Every method raises StoreError where the store cannot be read or written, or where what it
    reads is damaged.
    """

    def put(self, entries: Sequence[EncodedDocument]) -> Change:
        """Insert or replace documents, all or none, durable at return.

        A document of unchanged text keeps its vector id and its vector; of it only title and
        metadata are updated. A new text gets a new vector id, and the old one is removed. A
        vector id is never assigned twice.

        Raises:
            ValueError: an id twice in one call, or a vector that is not Float32[dimension] of
                unit norm.
        """
        ...

    def delete(self, document_ids: Sequence[str]) -> Change:
        """Delete documents, all or none, durable at return; unknown ids are ignored."""
        ...

    def get(self, vector_ids: Sequence[int]) -> Mapping[int, DocumentSummary]:
        """Return what an answer shows of these vector ids; removed ones are absent."""
        ...

    def find(self, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        """Return the documents of these ids with their texts; unknown ids are absent."""
        ...

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the content hash of each of these documents; unknown ids are absent."""
        ...

    def vectors(self, vector_ids: Sequence[int] | Int64) -> tuple[Int64, Float32]:
        """Return those of these vector ids that exist, ascending Int64[N], and their vectors.

        The vectors are Float32[N, dimension].
        """
        ...

    def block_vectors(self, vector_ids: Sequence[int]) -> Mapping[int, BlockVectors]:
        """Return the block vectors of these vector ids; ids that have none are absent."""
        ...

    def select(self, where: Filter | None, without: Sequence[str] = ()) -> IdSet:
        """Return the vectors of the documents for which a filter holds, without some documents."""
        ...


class ChangeHistory(Protocol):
    """Which vectors were removed, and since when that is known."""

    @property
    def start(self) -> int:
        """The lowest sequence from which an index can still catch up; it always can from 0."""
        ...

    def count_since(self, sequence: int) -> tuple[int, int]:
        """Count the present vectors added since a sequence, and those of then that are gone."""
        ...

    def forget(self, before: int, *, trained: int) -> int:
        """Forget the removals that no index of the sequence `before` or later needs.

        Those since `trained` of vectors that existed then are kept, to be counted. Returns how
        many were forgotten.
        """
        ...


class VectorSource(Protocol):
    """The vectors of a store and how they change. Safe to use from many threads.

    The sequence counts the changes of the set of vectors. Every method raises StoreError where
    the store cannot be read, or where what it reads is damaged.
    """

    @property
    def fingerprint(self) -> str:
        """Of the checkpoint that made the vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        ...

    @property
    def sequence(self) -> int:
        """How often the set of vectors has changed; 0 in a new store."""
        ...

    @property
    def log(self) -> ChangeHistory:
        """How far back changes are known."""
        ...

    def __len__(self) -> int:
        """Return how many documents, each with one vector, there are."""
        ...

    def vectors(self, vector_ids: Sequence[int] | Int64) -> tuple[Int64, Float32]:
        """Return those of these vector ids that exist, ascending, and their vectors."""
        ...

    def changes_since(self, sequence: int) -> Change:
        """Return what an index of `sequence` must do to hold what the store holds now.

        Raises:
            ValueError: `sequence` is below 0 or ahead of the store.
            StoreError: the changes since `sequence` are forgotten.
        """
        ...

    def read_changes(self, sequence: int, last: int) -> tuple[Change, Int64, Float32]:
        """Return `changes_since` and, of the same state, the `last` vectors that were added.

        Raises:
            ValueError: as `changes_since`.
            StoreError: as `changes_since`.
        """
        ...


class WordIndex(Protocol):
    """The words of stored documents, as a search uses them. Safe to use from many threads.

    A change of the store that was acknowledged is found by every later call. Every method raises
    StoreError where the store cannot be read, and VectorEngineError where an engine that holds the
    words fails.
    """

    @property
    def building(self) -> bool:
        """Whether what is searched is still being made: a search would wait for it."""
        ...

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text, and its title if it has one, to the terms that stored documents have."""
        ...

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document that others share; none if it is not there."""
        ...

    def candidates(self, query: LexicalQuery, k: int, among: IdSet | None = None) -> Int64:
        """Return k or more documents that share the heaviest terms of a query, ascending.

        Fewer if fewer share one; of `among` only. Some may have been deleted.
        """
        ...

    def search(self, query: LexicalQuery, k: int, *, among: IdSet | None = None) -> LexicalMatches:
        """Find the k documents of the highest score, best first; fewer if fewer share a term."""
        ...

    def search_all(self, query: LexicalQuery, k: int, among: IdSet) -> LexicalMatches:
        """Find k selected documents that share any term, however common."""
        ...

    def score(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones."""
        ...

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score."""
        ...


class StoredWords(WordIndex, Protocol):
    """The same, as the store and its upkeep use it."""

    @property
    def changes(self) -> int:
        """How many times a document was added, removed or counted again."""
        ...

    @property
    def problem(self) -> str | None:
        """What the engine that holds the words failed in last; None while it works."""
        ...

    def titles(self, connection: sqlite3.Connection) -> TitleMatcher:
        """Return the titles of the stored documents, as of some moments ago."""
        ...

    def remember_titles(self, titles: Sequence[str], inserted: int) -> None:
        """Add the titles of documents that were put, `inserted` of which are new."""
        ...

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as `score` compares them when one is the query."""
        ...

    def changed(self, inserted: InsertedTerms | None = None) -> None:
        """Let searches find a change of the store that was committed; a failure is logged.

        Args:
            inserted: what `insert_terms` returned, if that was the last of the change.
        """
        ...

    def make_in_background(self) -> None:
        """Begin to open or to make what is searched, in a thread."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for that thread, at most so long."""
        ...

    def close(self) -> None:
        """Let that thread give up, and wait for it."""
        ...

    def unpublished(self) -> int:
        """Count the changes since what is searched was published."""
        ...

    def publish(self) -> None:
        """Let what is searched be kept, so that opening the store need not make it.

        Raises:
            SnapshotError: it cannot be written.
        """
        ...

    def check(self) -> None:
        """Bring what is searched to the store, also after the engine that holds it failed."""
        ...

    def rebuild(self) -> None:
        """Make what is searched anew from the tables of the store, and publish it."""
        ...

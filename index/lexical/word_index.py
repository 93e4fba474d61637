"""The ports of the words of a store: what a search asks of them, and what the store does.

`LexicalIndex` searches a copy in this process, `index.vectors.milvus.word_index` a Milvus.
`tests/contract/test_word_index.py` is what every implementation passes.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from encoder.arrays import Float32, Int64
from encoder.terms.title_matcher import TitleMatcher
from index.id_set import IdSet
from index.lexical.scoring import LexicalQuery, TermRows, TermWeight
from index.progress import Progress

CANDIDATES = 200  # scored exactly; on validation 300 found no more than 100 did, within 0.003


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """Documents with their lexical scores Float32[N] under their vector ids Int64[N]."""

    vector_ids: Int64
    scores: Float32


class WordIndex(Protocol):
    """The words of stored documents, as a search uses them. Safe to use from many threads.

    A change of the store that was acknowledged is found by every later call. Every method raises
    StoreError where the store cannot be read, and VectorEngineError where an engine that holds the
    words fails.
    """

    @property
    def making(self) -> bool:
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

    def changed(self) -> None:
        """Let searches find a change of the store that was committed; a failure is logged."""
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

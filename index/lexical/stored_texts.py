"""The texts of an open store as terms, and the titles that they name."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from encoder.arrays import Int64, UInt64
from encoder.terms.title_matcher import NO_TITLES, TitleMatcher, Titles, hashes_by_length
from index.common_text.collection import CommonTexts
from index.lexical.terms import HEAD_WORDS, MAX_TITLE_WORDS, count_terms_and_titles
from index.sqlite.connections import vector_id_list
from index.store.database import Connection, Connections

MAX_TITLE_DRIFT = 0.01  # share of the documents that may change before titles are found again
_TITLES = """
SELECT vector_id, title_hash FROM documents WHERE vector_id > ?"""
_HEADS = """
SELECT DISTINCT title_head FROM documents
WHERE title_head IN (SELECT value FROM json_each(?))"""
_NAMED = """
SELECT DISTINCT title_hash FROM documents
WHERE title_hash IN (SELECT value FROM json_each(?))"""
_TEXTS = """
SELECT vector_id, title, title_hash, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""

TitledText = tuple[str, str]  # a text, and its title or ""


class TitlesInStore:
    """The titles in a store that servers share, which is asked for those that a text names."""

    def __init__(self, store: Connection) -> None:
        """Use a connection inside a transaction."""
        self._store = store

    def find(self, items: UInt64) -> Iterator[tuple[int, Int64, UInt64]]:
        """Find the titles in a sequence of items UInt64[W], as `TitleMatcher` does.

        Where none begins with the same words, runs of more than these are not asked for.
        """
        runs = hashes_by_length(items, MAX_TITLE_WORDS)
        asked = runs[:HEAD_WORDS]
        if len(runs) > HEAD_WORDS:
            heads = runs[HEAD_WORDS - 1]
            begins = np.isin(heads, self._present(_HEADS, heads))
            asked += [longer[begins[: len(longer)]] for longer in runs[HEAD_WORDS:]]
        if asked:
            named = self._present(_NAMED, np.concatenate(asked))
            yield from TitleMatcher.of(named).find(items)

    def _present(self, statement: str, hashes: UInt64) -> UInt64:
        """Return those of these hashes [N], which may repeat, that a statement finds: UInt64[M]."""
        rows = self._store.execute(statement, (vector_id_list(np.unique(hashes).tolist()),))
        return _column(row[0] for row in rows)


class StoredTexts:
    """The texts of an open store, whose terms are counted. Safe to use from many threads.

    All titles are kept in memory, unless the store is asked for those that a text names. Some may
    belong to removed documents, or to documents that have another one now, which does no harm.
    """

    def __init__(self, truth: Connections, common: CommonTexts, *, ask: bool = False) -> None:
        """Read a store; what many of its texts share does not count.

        With `ask` it is asked for titles: one that servers share has indexes for that.
        """
        self._truth = truth
        self._common = common
        self._reading = threading.Lock()
        self._ask = ask
        self._in_memory = not ask
        self._titles, self._last, self._gone = NO_TITLES, 0, 0

    def count(
        self,
        vector_ids: Sequence[int],
        count: Callable[..., dict[str, int]] = count_terms_and_titles,
    ) -> list[tuple[int, dict[str, int]]]:
        """Count the terms of those of these documents that are there."""
        with self._truth.reading() as store:
            rows = store.execute(_TEXTS, (vector_id_list(vector_ids),)).fetchall()
            titles = self._titles_of(store, (row[2] for row in rows))
            common = self._common.read(store)
            return [(n, count(str(text), titles, str(title), common)) for n, title, _, text in rows]

    def count_text(self, text: TitledText) -> Counter[str]:
        """Count the terms of any text."""
        with self._truth.reading() as store:
            titles, common = self._titles_of(store), self._common.read(store)
            return count_terms_and_titles(text[0], titles, text[1], common)

    def note_gone(self, number: int) -> None:
        """Note that documents were removed; after many, the titles are all read again."""
        self._gone += number

    def forget(self) -> None:
        """Let all titles be read again when they are used next."""
        self._titles, self._last, self._gone = NO_TITLES, 0, 0

    def keep_titles(self, keep: bool) -> None:
        """Keep all titles in memory, or ask for them again, if they were asked for at first."""
        self._in_memory = keep or not self._ask
        self.forget()

    def _titles_of(self, store: Connection, others: Iterable[int | None] = ()) -> Titles:
        """Return the titles that texts may name, also those of documents that came since.

        Args:
            store: inside a transaction.
            others: hashes of titles that may have changed since they were read.
        """
        if not self._in_memory:
            return TitlesInStore(store)
        with self._reading:
            if self._gone > MAX_TITLE_DRIFT * len(self._titles):
                self.forget()
            rows = store.execute(_TITLES, (self._last,)).fetchall()
            new = _column((*(row[1] for row in rows), *others))
            self._titles = self._titles.joined(TitleMatcher.of(new))
            self._last = max((row[0] for row in rows), default=self._last)
            return self._titles


def _column(hashes: Iterable[int | None]) -> UInt64:
    return np.fromiter((number for number in hashes if number is not None), np.uint64)

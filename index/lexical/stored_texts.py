"""The texts of an open store as terms, and its titles, which are kept in memory."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from encoder.terms.title_matcher import NO_TITLES, TitleMatcher
from index.common_text.collection import CommonTexts
from index.lexical.terms import count_terms_and_titles, known_titles
from index.sqlite.connections import vector_id_list
from index.store.database import Connection, Connections

MAX_TITLE_DRIFT = 0.01  # share of the documents that may change before titles are found again
_TITLES = """
SELECT vector_id, title FROM documents WHERE vector_id > ?"""
_TEXTS = """
SELECT vector_id, title, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""

TitledText = tuple[str, str]  # a text, and its title or ""


class StoredTexts:
    """The texts of an open store, whose terms are counted. Safe to use from many threads.

    The titles that texts may name are kept in memory. Some may belong to removed documents, or to
    documents that have another one now, which does no harm.
    """

    def __init__(self, truth: Connections, common: CommonTexts) -> None:
        """Read a store; what many of its texts share does not count."""
        self._truth = truth
        self._common = common
        self._reading = threading.Lock()
        self._titles, self._last, self._gone = NO_TITLES, 0, 0

    def count(
        self,
        vector_ids: Sequence[int],
        count: Callable[..., dict[str, int]] = count_terms_and_titles,
    ) -> list[tuple[int, dict[str, int]]]:
        """Count the terms of those of these documents that are there."""
        with self._truth.reading() as store:
            rows = store.execute(_TEXTS, (vector_id_list(vector_ids),)).fetchall()
            titles = self._read_titles(store, [str(row[1]) for row in rows])
            common = self._common.read(store)
        return [(n, count(str(text), titles, str(title), common)) for n, title, text in rows]

    def count_text(self, text: TitledText) -> Counter[str]:
        """Count the terms of any text."""
        with self._truth.reading() as store:
            titles, common = self._read_titles(store), self._common.read(store)
        return count_terms_and_titles(text[0], titles, text[1], common)

    def note_gone(self, number: int) -> None:
        """Note that documents were removed; after many, the titles are all read again."""
        self._gone += number

    def forget(self) -> None:
        """Let all titles be read again when they are used next."""
        self._titles, self._last, self._gone = NO_TITLES, 0, 0

    def _read_titles(self, store: Connection, others: Iterable[str] = ()) -> TitleMatcher:
        """Return the titles, those of documents that came since and `others` among them."""
        with self._reading:
            if self._gone > MAX_TITLE_DRIFT * len(self._titles):
                self.forget()
            rows = store.execute(_TITLES, (self._last,)).fetchall()
            new = [*(str(title) for _, title in rows), *others]
            if any(new):
                self._titles = self._titles.joined(known_titles(new))
            self._last = max((row[0] for row in rows), default=self._last)
            return self._titles

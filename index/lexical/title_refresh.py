"""The titles of stored documents, and searching stored texts again for them.

A document is searched for the titles that are known when it is put. Those of later documents, and
changed ones, are found by a pass over all texts. Only documents whose terms differ are written, so
a pass that was killed is simply repeated.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from encoder.arrays import Bool
from encoder.terms.title_matcher import TitleMatcher
from index.common_text.runs import CommonText
from index.lexical.tables import (
    DocumentTerms,
    find_term_ids,
    read_document_terms,
    read_statistics,
    replace_terms,
)
from index.lexical.terms import (
    QUOTE,
    count_terms_and_titles,
    count_titles,
    known_titles,
    with_titles,
)
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections
from index.sqlite.task_state import TITLES, TITLES_BEGUN, read_count, read_state, write_state

MAX_DRIFT = 0.01  # share of the documents that may change before titles are read again
_DOCUMENTS_A_TRANSACTION = 256
_NUMBER = """
SELECT count(*) FROM documents"""
_TITLES = """
SELECT title FROM documents"""
_NEXT_DOCUMENTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
_PRESENT_TITLES = """
SELECT vector_id, title FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_TITLE_TERM_IDS = """
SELECT term_id FROM terms WHERE term >= ? AND term < ?"""

_Row = tuple[int, str, str]


class KnownTitles:
    """The titles of an open store, kept in memory. Safe to use from many threads.

    Some may belong to removed documents, which does no harm.
    """

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._titles = known_titles(())
        self._as_of = -1  # changes of the store

    def read(self, connection: sqlite3.Connection) -> TitleMatcher:
        """Return the titles, read again when too many changed."""
        now = read_statistics(connection)
        with self._reading:
            drift = abs(now.changes - self._as_of)
            if self._as_of < 0 or drift > MAX_DRIFT * now.documents:
                self._titles = known_titles(row[0] for row in connection.execute(_TITLES))
                self._as_of = now.changes
            return self._titles

    def remember(self, titles: Sequence[str], inserted: int) -> None:
        """Add the titles of documents that were put, as reading all of them again costs seconds.

        Args:
            titles: of all documents that were put.
            inserted: how many of these documents are new, or have a new text.
        """
        with self._reading:
            if self._as_of >= 0:
                if any(titles):
                    self._titles = with_titles(self._titles, titles)
                self._as_of += inserted


def refresh_titles(
    connections: SQLiteConnections,
    read_common: Callable[[sqlite3.Connection], CommonText],
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    written: Callable[[], None] = lambda: None,
) -> None:
    """Find the titles that each stored text names, and write the terms of those that differ.

    Documents may be put and deleted meanwhile. A pass that ends early because `stop` returns true
    does not count as complete; the next one goes on where it ended. `written` is called after each
    transaction that wrote terms.
    """
    with connections.reading() as connection:
        (number,) = connection.execute(_NUMBER).fetchone()
        changes, last = _read_pass(connection)
        titles = known_titles(row[0] for row in connection.execute(_TITLES))
        bounds = (QUOTE, chr(ord(QUOTE) + 1))
        rows = connection.execute(_TITLE_TERM_IDS, bounds).fetchall()
    title_ids = np.array(rows, dtype=np.int64).reshape(-1)
    is_title = np.zeros(int(title_ids.max(initial=0)) + 1, dtype=np.bool_)
    is_title[title_ids] = True
    progress.started("searching texts for titles", number)
    while not stop():
        with connections.reading() as connection:
            some = connection.execute(_NEXT_DOCUMENTS, (last, _DOCUMENTS_A_TRANSACTION)).fetchall()
            changed = _changed(connection, some, titles, is_title, read_common(connection))
        if not some:
            with connections.writing() as connection:
                write_state(connection, TITLES, changes)
                write_state(connection, TITLES_BEGUN, None)
            return
        if changed:
            with connections.writing() as connection:
                before = _read_changes(connection)
                _replace(connection, changed)
                changes += _read_changes(connection) - before  # without the writes of this pass
            written()
        last = int(some[-1][0])
        progress.advanced(len(some))
    if last:
        with connections.writing() as connection:
            write_state(connection, TITLES_BEGUN, [changes, last])


def count_changes_since_refresh(connection: sqlite3.Connection) -> int:
    """Count the documents added, removed or changed since the last complete pass began."""
    # A rebuilt lexical index counts from 0.
    return abs(_read_changes(connection) - (read_count(connection, TITLES) or 0))


def note_titles_are_fresh(connection: sqlite3.Connection) -> None:
    """Note that every text was searched for all present titles, inside a transaction."""
    write_state(connection, TITLES, _read_changes(connection))


def _read_pass(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the changes that a pass begins with, and the vector id that it goes on after.

    What was changed since a pass began is counted as changed after it, also if it was interrupted.
    """
    now = _read_changes(connection)
    match read_state(connection, TITLES_BEGUN):
        case [int(changes), int(last)] if 0 <= changes <= now:
            return changes, last
    return now, 0


def _read_changes(connection: sqlite3.Connection) -> int:
    return read_statistics(connection).changes


def _changed(
    connection: sqlite3.Connection,
    rows: Sequence[_Row],
    titles: TitleMatcher,
    is_title: Bool,
    common: CommonText,
) -> dict[int, tuple[str, Mapping[str, int]]]:
    """Return title and counts of each document whose stored title terms differ."""
    named = {n: count_titles(text, titles, title, common) for n, title, text in rows}
    ids = find_term_ids(connection, {term for terms in named.values() for term in terms})
    stored = read_document_terms(connection, named)
    return {
        n: (title, count_terms_and_titles(text, titles, title, common))
        for n, title, text in rows
        if n in stored
        and {ids.get(t, -1): c for t, c in named[n].items()} != _titles_of(stored[n], is_title)
    }


def _titles_of(terms: DocumentTerms, is_title: Bool) -> dict[int, int]:
    term_ids, counts = terms
    at = np.flatnonzero(is_title.take(np.minimum(term_ids, len(is_title) - 1)))
    at = at[term_ids[at] < len(is_title)]
    return dict(zip(term_ids[at].tolist(), counts[at].tolist(), strict=True))


def _replace(
    connection: sqlite3.Connection, changed: Mapping[int, tuple[str, Mapping[str, int]]]
) -> None:
    """Replace the terms of the documents that exist and still have the title they were read
    with."""
    present = dict(connection.execute(_PRESENT_TITLES, (json.dumps(list(changed)),)))
    replace_terms(
        connection,
        [(n, terms) for n, (title, terms) in changed.items() if present.get(n) == title],
    )

"""Examines the lexical index: every table of it against the texts that are stored."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from index.doctor_store import open_for_reading
from index.findings import Finding
from index.lexical_tables import MAX_COUNT, DocumentTerms, read_document_terms
from index.lexical_terms import count_terms, words_of
from index.title_terms import NAMED, OWN, QUOTE, title_term, title_words

_DOCUMENTS_A_READ = 256
_TEXTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""
# FTS5 shows what it holds: for each term, which is the id of a word, the documents that have it.
_VOCABULARY = "CREATE VIRTUAL TABLE temp.held USING fts5vocab('main', 'postings', 'instance')"
_HELD = """
SELECT doc, count(*), sum(CAST(term AS INTEGER)), max(CAST(term AS INTEGER))
FROM temp.held GROUP BY doc"""

_Postings = dict[int, tuple[int, int, int]]


def examine_words(path: Path) -> Iterator[Finding]:
    """Compare the words of every text with the tables of the lexical index.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            problem = _first_problem(connection)
        except (sqlite3.DatabaseError, ValueError, OverflowError) as error:
            problem = str(error)
    if problem:
        yield Finding("lexical index", problem, "make the lexical index again")


def _first_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    connection.execute(_VOCABULARY)
    connection.execute("BEGIN")  # one state for all that is compared
    terms = {
        term: (term_id, documents)
        for term_id, term, documents in connection.execute("SELECT * FROM terms")
    }
    term_of = {term_id: term for term, (term_id, _) in terms.items()}
    frequencies = Counter[str]()
    postings: _Postings = {}
    last = 0
    while rows := connection.execute(_TEXTS, (last, _DOCUMENTS_A_READ)).fetchall():
        stored = read_document_terms(connection, (row[0] for row in rows))
        for vector_id, title, text in rows:
            held = _by_term(term_of, stored.get(vector_id))
            if held is None or not _are_of(held, title, text):
                return f"the words of vector id {vector_id} are not those of its text"
            frequencies.update(held.keys())
            if held:
                ids = [terms[term][0] for term in held]
                postings[vector_id] = (len(ids), sum(ids), max(ids))
        last = rows[-1][0]
    if frequencies != {term: documents for term, (_, documents) in terms.items()}:
        return "the document frequencies are not those of the texts"
    return _wrong_totals(connection, last) or _wrong_postings(connection, postings)


def _wrong_totals(connection: sqlite3.Connection, last: int) -> str | None:
    (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    statistics = connection.execute("SELECT documents FROM term_statistics").fetchall()
    if statistics != [(documents,)]:
        return f"it counts {json.dumps(statistics)} documents, and there are {documents}"
    return None


def _wrong_postings(connection: sqlite3.Connection, expected: _Postings) -> str | None:
    held = {row[0]: tuple(row[1:]) for row in connection.execute(_HELD)}
    if held != expected:
        wrong = {key for key in held.keys() | expected.keys() if held.get(key) != expected.get(key)}
        return f"the postings of {len(wrong)} documents, {min(wrong)} first, are not their words"
    return None


def _by_term(term_of: Mapping[int, str], held: DocumentTerms | None) -> dict[str, int] | None:
    """Return the count of each term that is held for a document; None where one is unknown."""
    if held is None or not term_of.keys() >= set(held[0].tolist()):
        return None
    ids, counts = held
    return {term_of[one]: n for one, n in zip(ids.tolist(), counts.tolist(), strict=True)}


def _are_of(held: Mapping[str, int], title: str, text: str) -> bool:
    """Say whether terms are those of a text.

    It may name a title that is not among them: that of a document which came later.
    """
    titles = {term: n for term, n in held.items() if term.startswith(QUOTE)}
    words = {term: n for term, n in held.items() if term not in titles}
    if words != {term: min(n, MAX_COUNT) for term, n in count_terms(text).items()}:
        return False
    own = title_words(title)
    if own and titles.pop(title_term(own), None) != OWN:
        return False
    joined = f" {' '.join(words_of(text))} "
    return all(n == NAMED and f" {term[1:-1]} " in joined for term, n in titles.items())

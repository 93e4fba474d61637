"""Examine the tables that follow from the documents: metadata values, families, lexical index."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from index.doctor.findings import Finding, Remedy, require_damage
from index.doctor.store_checks import open_for_reading
from index.errors import StoreError
from index.lexical.tables import MAX_COUNT, DocumentTerms, read_document_terms
from index.lexical.terms import (
    NAMED_TITLE_COUNT,
    OWN_TITLE_COUNT,
    QUOTE,
    count_terms,
    title_term,
    title_words,
    words_of,
)
from index.near_duplicates.signatures import band_keys, sign, unpack
from index.near_duplicates.tables import follow_rule
from index.store.metadata import metadata_values

_ROWS = """
SELECT field, kind, value, vector_id FROM metadata_values"""
_ROWS_OF = """
SELECT field, kind, value, vector_id FROM metadata_values
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_METADATA = """
SELECT vector_id, metadata FROM documents"""
_METADATA_OF = """
SELECT vector_id, metadata FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_64_BITS = 2**64 - 1

_Sums = dict[int, int]


def examine_metadata(path: Path) -> Iterator[Finding]:
    """Compare the table that filters read with the metadata of every document.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        connection.execute("BEGIN")  # everything is compared in one state
        wrong = _wrong_documents(connection)
        missing, surplus = _differences(connection, wrong) if wrong else (0, 0)
    if wrong:
        problem = (
            f"the values of {len(wrong)} documents, vector id {wrong[0]} first, do not match "
            f"their metadata: {missing} rows are missing and {surplus} are superfluous"
        )
        yield Finding("metadata values", problem, Remedy.REBUILD_METADATA_VALUES)


def _wrong_documents(connection: sqlite3.Connection) -> list[int]:
    """Return the vector ids whose rows are not those that their metadata gives, ascending.

    The rows are ordered by value, so those of a document are complete only at the end. Not the
    rows are kept, but the sum of their hashes for each document.
    """
    expected, unknown = _expected_sums(connection)
    held: _Sums = {}
    for *row, vector_id in connection.execute(_ROWS):
        held[vector_id] = (held.get(vector_id, 0) + _hash(tuple(row))) & _64_BITS
    different = {one for one, hashed in held.items() if expected.get(one, 0) != hashed}
    different |= {one for one, hashed in expected.items() if hashed and one not in held}
    return sorted(different - unknown)


def _expected_sums(connection: sqlite3.Connection) -> tuple[_Sums, set[int]]:
    """Return the sum of each document, and the documents whose own metadata is damaged."""
    sums: _Sums = {}
    unknown: set[int] = set()
    for vector_id, metadata in connection.execute(_METADATA):
        try:
            values = metadata_values(json.loads(metadata))
        except (AttributeError, TypeError, ValueError):
            unknown.add(vector_id)
        else:
            sums[vector_id] = sum(map(_hash, values)) & _64_BITS
    return sums, unknown


def _differences(connection: sqlite3.Connection, wrong: list[int]) -> tuple[int, int]:
    """Count the rows of these documents that are missing, and the superfluous ones."""
    id_list = (json.dumps(wrong),)
    metadata: Mapping[int, Any] = dict(connection.execute(_METADATA_OF, id_list))
    expected = {
        repr((*value, vector_id))
        for vector_id, stored in metadata.items()
        for value in metadata_values(json.loads(stored))
    }
    held = {repr(row) for row in connection.execute(_ROWS_OF, id_list)}
    return len(expected - held), len(held - expected)


def _hash(row: tuple[Any, ...]) -> int:
    return hash(repr(row)) & _64_BITS  # of the text: Python gives -1 and -2 the same hash


_SIGNED_TEXTS = """
SELECT t.text_id, t.signature, (
    SELECT d.text FROM document_texts JOIN documents d USING (vector_id)
    WHERE text_id = t.text_id LIMIT 1
) FROM texts t WHERE t.text_id > ? ORDER BY t.text_id LIMIT 256"""
_OTHER_TEXT = """
SELECT d.id FROM document_texts x JOIN documents d USING (vector_id)
LEFT JOIN texts t USING (text_id)
WHERE t.content_hash IS NOT d.content_hash ORDER BY d.vector_id LIMIT 1"""
_BANDS = """
SELECT text_id, band FROM text_bands ORDER BY text_id"""
_ONE_WAY = """
SELECT count(*) FROM text_links l WHERE NOT EXISTS (
    SELECT 1 FROM text_links b WHERE b.text_id = l.other AND b.other = l.text_id
)"""


def examine_families(path: Path) -> Iterator[Finding]:
    """Compare signatures with texts, bands with signatures, and families with links.

    Texts without a signature are no problem, nor are signatures made by another rule, which are
    dropped when the store is opened for writing.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            problem = _first_family_problem(connection)
        except (sqlite3.DatabaseError, StoreError, TypeError, ValueError) as error:
            require_damage(path, error)
            problem = str(error)
    if problem:
        yield Finding("families", problem, Remedy.FIND_FAMILIES)


def _first_family_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    connection.execute("BEGIN")  # everything is compared in one state
    if not follow_rule(connection):
        return None
    for (document_id,) in connection.execute(_OTHER_TEXT):
        return f"document {document_id!r} is under another text than its own"
    held: dict[int, set[int]] = {}
    for text_id, band in connection.execute(_BANDS):
        held.setdefault(text_id, set()).add(band)
    last = 0
    while rows := connection.execute(_SIGNED_TEXTS, (last,)).fetchall():
        for text_id, packed, text in rows:
            if text is None:
                return f"text {text_id} belongs to no document"
            signature = unpack(packed)
            if signature.tolist() != sign(text).tolist():
                return f"the signature of text {text_id} does not match its text"
            if held.pop(text_id, set()) != set(band_keys(signature)):
                return f"the bands of text {text_id} do not match its signature"
        last = rows[-1][0]
    if held:
        return f"there are bands of {len(held)} missing texts, {min(held)} first"
    return _wrong_families(connection)


def _wrong_families(connection: sqlite3.Connection) -> str | None:
    (one_way,) = connection.execute(_ONE_WAY).fetchone()
    if one_way:
        return f"{one_way} links exist in one direction only"
    families = dict(connection.execute("SELECT text_id, family FROM texts"))
    links: dict[int, list[int]] = {}
    for text_id, other in connection.execute("SELECT text_id, other FROM text_links"):
        links.setdefault(text_id, []).append(other)
    if unknown := links.keys() - families.keys():
        return f"there are links of {len(unknown)} missing texts, {min(unknown)} first"
    seen: set[int] = set()
    for text_id in sorted(families):
        if text_id in seen:
            continue
        seen.add(text_id)
        waiting = [text_id]
        while waiting:
            one = waiting.pop()
            if families[one] != text_id:
                return f"text {one} is in family {families[one]}, not in family {text_id}"
            new = [other for other in links.get(one, ()) if other not in seen]
            seen.update(new)
            waiting += new
    return None


_DOCUMENTS_A_READ = 256
_TEXTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""


def examine_words(path: Path) -> Iterator[Finding]:
    """Compare the words of every text with the tables of the lexical index.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            problem = _first_problem(connection)
        except (sqlite3.DatabaseError, ValueError, OverflowError) as error:
            require_damage(path, error)
            problem = str(error)
        except (AttributeError, TypeError):
            problem = "a term or a text is none"
    if problem:
        yield Finding("lexical index", problem, Remedy.REBUILD_LEXICAL_INDEX)


def _first_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    connection.execute("BEGIN")  # everything is compared in one state
    terms = {
        term: (term_id, documents)
        for term_id, term, documents in connection.execute("SELECT * FROM terms")
    }
    term_of = {term_id: term for term, (term_id, _) in terms.items()}
    frequencies = Counter[str]()
    last = 0
    while rows := connection.execute(_TEXTS, (last, _DOCUMENTS_A_READ)).fetchall():
        stored = read_document_terms(connection, (row[0] for row in rows))
        for vector_id, title, text in rows:
            held = _by_term(term_of, stored.get(vector_id))
            if held is None or not _match_text(held, title, text):
                return f"the words of vector id {vector_id} do not match its text"
            frequencies.update(held.keys())
        last = rows[-1][0]
    if frequencies != {term: documents for term, (_, documents) in terms.items()}:
        return "the document frequencies do not match the texts"
    return _wrong_totals(connection)


def _wrong_totals(connection: sqlite3.Connection) -> str | None:
    (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    statistics = connection.execute("SELECT documents FROM term_statistics").fetchall()
    if statistics != [(documents,)]:
        return f"it counts {json.dumps(statistics)} documents instead of {documents}"
    return None


def _by_term(term_of: Mapping[int, str], held: DocumentTerms | None) -> dict[str, int] | None:
    """Return the count of each term that is stored for a document; None where one is unknown."""
    if held is None or not term_of.keys() >= set(held[0].tolist()):
        return None
    ids, counts = held
    return {term_of[one]: n for one, n in zip(ids.tolist(), counts.tolist(), strict=True)}


def _match_text(held: Mapping[str, int], title: str, text: str) -> bool:
    """Return whether terms are those of a text.

    The text may name more titles: those of documents that were stored later.
    """
    titles = {term: n for term, n in held.items() if term.startswith(QUOTE)}
    words = {term: n for term, n in held.items() if term not in titles}
    if words != {term: min(n, MAX_COUNT) for term, n in count_terms(text).items()}:
        return False
    own = title_words(title)
    if own and titles.pop(title_term(own), None) != OWN_TITLE_COUNT:
        return False
    joined = f" {' '.join(words_of(text))} "
    return all(n == NAMED_TITLE_COUNT and f" {term[1:-1]} " in joined for term, n in titles.items())

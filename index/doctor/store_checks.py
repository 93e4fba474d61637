"""Examine the document store: the database, every row of it, and the tables that follow from it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from index.alignment.alignment_index import BLOCKS_FILE
from index.alignment.spaces import find_space, load_space
from index.alignment.tables import damaged_blocks
from index.common_text.collection import read_common_text
from index.common_text.runs import CommonText
from index.doctor.findings import Finding, Remedy, require_damage
from index.document import is_too_deep
from index.lexical.tables import MAX_COUNT, DocumentTerms, read_document_terms
from index.lexical.terms import (
    NAMED_TITLE_COUNT,
    OWN_TITLE_COUNT,
    QUOTE,
    count_terms,
    hash_words,
    title_term,
    title_words,
    words_of,
)
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from index.store.checksums import (
    Checksums,
    blocks_checksum,
    details_checksum,
    read_checksums,
    summary_checksum,
    vector_checksum,
)
from index.store.filters import metadata_values
from index.store.schema import APPLICATION_ID, SCHEMA_VERSION

_PROBLEMS_SHOWN = 5
_DOCUMENTS_A_READ = 256
_REINDEX_HELPS = ("missing from index", "wrong # of entries in index", "non-unique entry in index")
_LEXICAL = ("terms", "document_terms", "removed_terms", "term_statistics")
_IDS = "SELECT vector_id FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"
_DOCUMENTS = """
SELECT vector_id, id, title, metadata, content_hash, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at, text
FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_VECTORS = """
SELECT vector_id, sequence, vector FROM vectors
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_BLOCKS = """
SELECT vector_id, offsets, vectors FROM block_vectors
WHERE vector_id IN (SELECT value FROM json_each(?))"""


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a database that another process may be writing to.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = open_reader(path)
    connection.isolation_level = "DEFERRED"
    return connection


def examine_database(path: Path) -> Iterator[Finding]:
    """Look for damage in the structure of the file; after any, nothing else can be trusted.

    Raises:
        sqlite3.Error: it cannot be read at all.
    """
    with closing(open_for_reading(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
            problem = f"is not a store of format {SCHEMA_VERSION} (it says {version})"
            yield Finding(path.name, problem, Remedy.RESTORE_BACKUP)
            return
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            shown = "; ".join(problems[:_PROBLEMS_SHOWN])
            yield Finding(
                path.name, f"the database is damaged: {shown}", _database_remedy(problems)
            )
            return
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        if orphans:
            tables = ", ".join(sorted({str(row[0]) for row in orphans}))
            problem = f"{len(orphans)} rows of {tables} belong to no document"
            yield Finding(path.name, problem, Remedy.RESTORE_BACKUP)


def _database_remedy(problems: Sequence[str]) -> Remedy:
    if all(any(known in problem for known in _REINDEX_HELPS) for problem in problems):
        return Remedy.REINDEX_DATABASE
    if all(any(table in problem.lower() for table in _LEXICAL) for problem in problems):
        return Remedy.REBUILD_LEXICAL_INDEX
    return Remedy.RESTORE_BACKUP


@dataclass(slots=True)
class _Damage:
    """Damaged rows by vector id, the documents with their ids, and rows without checksums."""

    documents: dict[int, str] = field(default_factory=dict)
    vectors: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    unchecked: int = 0


def examine_rows(path: Path, dimension: int) -> Iterator[Finding]:
    """Compare every row with its checksum, every text with its hash, and sequences with the last.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    damaged = _Damage()
    with closing(open_for_reading(path)) as connection:
        connection.execute("BEGIN")  # one state for all that is compared
        (sequence,) = connection.execute("SELECT sequence FROM meta").fetchone()
        last = 0
        while ids := [row[0] for row in connection.execute(_IDS, (last, _DOCUMENTS_A_READ))]:
            _examine_some(connection, ids, (dimension, sequence), damaged)
            last = ids[-1]
    if damaged.documents:
        yield Finding(
            path.name,
            f"{_counted(list(damaged.documents.values()), 'document')} damaged in text, title, "
            "metadata or receipt: restore a backup, index them again, or",
            Remedy.REMOVE_DAMAGED,
            tuple(damaged.documents),
        )
    if damaged.vectors:
        problem = f"{_counted(damaged.vectors, 'vector')} damaged or missing"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damaged.vectors))
    if damaged.blocks:
        problem = f"the block vectors of {_counted(damaged.blocks, 'document')} damaged"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damaged.blocks))
    if damaged.unchecked:
        problem = f"{damaged.unchecked} documents have no checksums"
        yield Finding(path.name, problem, Remedy.REBUILD_CHECKSUMS)


def _examine_some(
    connection: sqlite3.Connection, ids: list[int], bounds: tuple[int, int], damaged: _Damage
) -> None:
    id_list = (json.dumps(ids),)
    checksums = read_checksums(connection, ids)
    damaged.unchecked += len(ids) - len(checksums)
    for row in connection.execute(_DOCUMENTS, id_list):
        if _document_is_damaged(row, checksums.get(row[0])):
            damaged.documents[row[0]] = str(row[1])
    vectors = {row[0]: row[1:] for row in connection.execute(_VECTORS, id_list)}
    for vector_id in ids:
        if _vector_is_damaged(vector_id, vectors.get(vector_id), bounds, checksums):
            damaged.vectors.append(vector_id)
    blocks = {row[0]: row[1:] for row in connection.execute(_BLOCKS, id_list)}
    for vector_id, known in checksums.items():
        if blocks_checksum(vector_id, *blocks.get(vector_id, (None, None))) != known.blocks:
            damaged.blocks.append(vector_id)


def _document_is_damaged(row: Sequence[Any], known: Checksums | None) -> bool:
    metadata, content_hash, values, text = row[3], row[4], row[5:-1], row[-1]
    if not isinstance(text, str) or sha256(text.encode()).digest() != content_hash:
        return True
    if _is_unreadable(metadata):
        return True
    return known is not None and (known.summary, known.details) != (
        summary_checksum(row[:4]),
        details_checksum(content_hash, values),
    )


def _is_unreadable(metadata: object) -> bool:
    """Return whether metadata is no JSON object, or is too deep to be sent."""
    try:
        read = json.loads(metadata) if isinstance(metadata, str) else None
    except (ValueError, RecursionError):
        return True
    return not isinstance(read, dict) or is_too_deep(read)


def _vector_is_damaged(
    vector_id: int,
    row: Sequence[Any] | None,
    bounds: tuple[int, int],
    checksums: Mapping[int, Checksums],
) -> bool:
    dimension, last = bounds
    if row is None:
        return True
    sequence, vector = row
    if not isinstance(vector, bytes) or len(vector) != 4 * dimension:
        return True
    if not isinstance(sequence, int) or not 0 < sequence <= last:
        return True
    known = checksums.get(vector_id)
    if known is not None:
        return known.vector != vector_checksum(vector_id, vector)
    return not bool(np.isfinite(np.frombuffer(vector, dtype="<f4")).all())


def _counted(damaged: Sequence[object], noun: str) -> str:
    shown = ", ".join(str(item) for item in damaged[:_PROBLEMS_SHOWN])
    more = ", …" if len(damaged) > _PROBLEMS_SHOWN else ""
    verb = "is" if len(damaged) == 1 else "are"
    return f"{len(damaged)} {noun}{'' if len(damaged) == 1 else 's'} ({shown}{more}) {verb}"


_VALUES = """
SELECT field, kind, value, vector_id FROM metadata_values"""
_VALUES_OF = """
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
    for *row, vector_id in connection.execute(_VALUES):
        held[vector_id] = (held.get(vector_id, 0) + _hash(tuple(row))) & _64_BITS
    different = {n for n, hashed in held.items() if expected.get(n, 0) != hashed}
    different |= {n for n, hashed in expected.items() if hashed and n not in held}
    return sorted(different - unknown)


def _expected_sums(connection: sqlite3.Connection) -> tuple[_Sums, set[int]]:
    """Return the sum of each document, and the documents whose metadata is damaged."""
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
    held = {repr(row) for row in connection.execute(_VALUES_OF, id_list)}
    return len(expected - held), len(held - expected)


def _hash(row: tuple[Any, ...]) -> int:
    return hash(repr(row)) & _64_BITS  # of the text: Python gives -1 and -2 the same hash


def examine_follower(path: Path) -> Iterator[Finding]:
    """Look for damage in the file of a follower; what is missing is made again without being told.

    Raises:
        StorageError: the file cannot be read for another reason than damage.
    """
    if not path.exists():
        return
    try:
        with closing(open_for_reading(path)) as connection:
            (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if problem == "ok" and path.name == BLOCKS_FILE:
                rows = damaged_blocks(connection)
                problem = f"{len(rows)} rows, vector id {rows[0]} first" if rows else "ok"
    except DATABASE_ERRORS as error:
        require_damage(path, error)
        problem = error
    if problem != "ok":
        yield Finding(path.name, f"is damaged: {problem}", Remedy.DELETE)


_TEXTS = """
SELECT vector_id, title, text FROM documents WHERE vector_id > ? ORDER BY vector_id LIMIT ?"""


def examine_words(path: Path) -> Iterator[Finding]:
    """Compare the words of every text with the tables of the lexical index.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            problem = _first_word_problem(connection)
        except (sqlite3.DatabaseError, ValueError, OverflowError) as error:
            require_damage(path, error)
            problem = str(error)
        except (AttributeError, TypeError):
            problem = "a term or a text is none"
    if problem:
        yield Finding("lexical index", problem, Remedy.REBUILD_LEXICAL_INDEX)


def _first_word_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    connection.execute("BEGIN")  # everything is compared in one state
    terms = {
        term: (term_id, documents)
        for term_id, term, documents in connection.execute("SELECT * FROM terms")
    }
    term_of = {term_id: term for term, (term_id, _) in terms.items()}
    frequencies = Counter[str]()
    common = read_common_text(connection)
    last = 0
    while rows := connection.execute(_TEXTS, (last, _DOCUMENTS_A_READ)).fetchall():
        stored = read_document_terms(connection, (row[0] for row in rows))
        for vector_id, title, text in rows:
            held = _by_term(term_of, stored.get(vector_id))
            if held is None or not _match_text(held, title, text, common):
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
    return {term_of[term_id]: n for term_id, n in zip(ids.tolist(), counts.tolist(), strict=True)}


def _is_changing(text: str, common: CommonText) -> bool:
    """Return whether a text may still be counted as before its common text was measured."""
    return common.is_changing(hash_words(words_of(text)))


def _match_text(held: Mapping[str, int], title: str, text: str, common: CommonText) -> bool:
    """Return whether terms are those of a text.

    The text may name more titles: those of documents that were stored later.
    """
    titles = {term: n for term, n in held.items() if term.startswith(QUOTE)}
    words = {term: n for term, n in held.items() if term not in titles}
    expected = {term: min(n, MAX_COUNT) for term, n in count_terms(text, common).items()}
    if words != expected and not _is_changing(text, common):
        return False
    words_of_title = title_words(title)
    if words_of_title and titles.pop(title_term(words_of_title), None) != OWN_TITLE_COUNT:
        return False
    joined = f" {' '.join(words_of(text))} "
    return all(n == NAMED_TITLE_COUNT and f" {term[1:-1]} " in joined for term, n in titles.items())


def examine_spaces(path: Path) -> Iterator[Finding]:
    """Read the alignment space; a store that was never given one has nothing to check.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        row = find_space(connection)
        try:
            if row is not None:
                load_space(connection, row.space_id)
        except ValueError as error:
            yield Finding("alignment", str(error), Remedy.ALIGN)

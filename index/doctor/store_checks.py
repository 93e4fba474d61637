"""Examine the document store: the database, every row of it, and the tables that follow from it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from encoder.terms.segmentation import words_of
from index.alignment.tables import (
    ALIGNMENT_TABLES,
    count_pending,
    find_space,
    load_space,
    read_aligned_blocks,
)
from index.common_text.collection import read_common_text
from index.common_text.runs import CommonText
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import StoreError
from index.lexical.tables import LEXICAL_TABLES, read_added, read_last_term, read_statistics
from index.lexical.terms import hash_words
from index.near_duplicates.signatures import band_keys, sign, unpack
from index.near_duplicates.tables import FAMILY_TABLES, follow_rule
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from index.store.checksums import find_damage
from index.store.filters import metadata_values
from index.store.schema import APPLICATION_ID, SCHEMA_VERSION

# The tables that `index.doctor.repair` makes again; it copies the others.
DERIVED_TABLES = frozenset(
    {
        *(*LEXICAL_TABLES, *FAMILY_TABLES, *ALIGNMENT_TABLES),
        *("metadata_values", "common_marks"),
    }
)
_PROBLEMS_SHOWN = 5


def examine_truth(path: Path) -> Iterator[Finding]:
    """Let SQLite check the file, and compare every row that nothing else gives with its checksum.

    Damage of the file is repaired by copying these rows where all of them can be read.

    Raises:
        sqlite3.Error: it cannot be read at all.
    """
    with closing(open_reader(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
            problem = f"is not a store of format {SCHEMA_VERSION} (it says {version})"
            yield Finding(path.name, problem, Remedy.RESTORE_BACKUP)
            return
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        shown = f"the database is damaged: {'; '.join(problems[:_PROBLEMS_SHOWN])}"
        try:
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
            connection.execute("BEGIN")  # one state for all that is compared
            damage = find_damage(connection)
        except DATABASE_ERRORS as error:
            require_damage(path, error)
            yield Finding(path.name, shown, Remedy.RESTORE_BACKUP)
            return
    if problems != ["ok"]:
        yield Finding(path.name, shown, Remedy.REBUILD)
    if orphans:
        tables = sorted({str(row[0]) for row in orphans})
        remedy = Remedy.REBUILD if DERIVED_TABLES.issuperset(tables) else Remedy.RESTORE_BACKUP
        problem = f"{len(orphans)} rows of {', '.join(tables)} belong to no document"
        yield Finding(path.name, problem, remedy)
    if damage.documents:
        problem = (
            f"{_counted(list(damage.documents.values()))} damaged in text, title, metadata or "
            "receipt: restore a backup, index them again, or"
        )
        yield Finding(path.name, problem, Remedy.REMOVE_DAMAGED, tuple(damage.documents))
    if damage.encodings:
        problem = f"{_counted(list(damage.encodings.values()))} damaged in vectors or checksums"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damage.encodings))


def _counted(damaged: Sequence[str]) -> str:
    shown = ", ".join(damaged[:_PROBLEMS_SHOWN]) + ", …" * (len(damaged) > _PROBLEMS_SHOWN)
    many = len(damaged) > 1
    return f"{len(damaged)} document{'s' * many} ({shown}) {'are' if many else 'is'}"


def examine_derived(path: Path) -> Iterator[Finding]:
    """Check the tables that follow from the truth.

    Raises:
        StorageError: the file cannot be read for another reason than damage.
    """
    for what, first_problem in _DERIVED.items():
        problem = problem_of(path, first_problem)
        if problem:
            yield Finding(what, problem, Remedy.REBUILD)


def problem_of(path: Path, first_problem: Callable[[sqlite3.Connection], str | None]) -> str | None:
    """Return what a check says of a store, in one state of it; None if nothing is wrong.

    Raises:
        StorageError: the file cannot be read for another reason than damage.
    """
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("BEGIN")
            return first_problem(connection)
    except (*DATABASE_ERRORS, StoreError, AttributeError, TypeError, ValueError) as error:
        require_damage(path, error)
        return str(error)


_VALUES = """
SELECT field, kind, value, vector_id FROM metadata_values"""
_METADATA = """
SELECT vector_id, metadata FROM documents"""


def metadata_problem(connection: sqlite3.Connection) -> str | None:
    """Compare the table that filters read with the metadata of every document.

    Its rows are ordered by value, so those of a document are complete only at the end. Not the
    rows are kept, but the sum of their hashes for each document.
    """
    sums = Counter[int]()
    for *row, vector_id in connection.execute(_VALUES):
        sums[vector_id] += _hash(row)
    for vector_id, metadata in connection.execute(_METADATA):
        sums[vector_id] -= sum(map(_hash, metadata_values(json.loads(metadata))))
    wrong = sorted(vector_id for vector_id, rest in sums.items() if rest)
    if not wrong:
        return None
    return f"the values of {len(wrong)} documents do not match, vector id {wrong[0]} first"


def _hash(row: Sequence[Any]) -> int:
    return hash(repr(tuple(row)))  # of the text: Python gives -1 and -2 the same hash


_TERMS_A_READ = 10_000_000


def words_problem(connection: sqlite3.Connection) -> str | None:
    """Compare the words of every document with their checksum, and count them again."""
    documents, last = 0, read_last_term(connection)
    counted = np.zeros(last + 1, dtype=np.int64)
    for added in read_added(connection, -1, last, _TERMS_A_READ):
        if added.damaged:
            return f"the words of vector id {added.damaged[0]} are damaged"
        documents += len(added.documents.vector_ids)
        counted += np.bincount(added.documents.term_ids, minlength=last + 1)
    (stored,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    if {documents, read_statistics(connection).documents} != {stored}:
        return f"it has the words of {documents} documents instead of {stored}"
    for term_id, number in connection.execute("SELECT term_id, documents FROM terms"):
        counted[term_id] -= number
    return "the document frequencies do not match the words" if counted.any() else None


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


def families_problem(connection: sqlite3.Connection) -> str | None:
    """Compare signatures with texts, bands with signatures, and families with links.

    Texts without a signature are no problem, nor are signatures made by another rule, which are
    dropped when the store is opened for writing.
    """
    if not follow_rule(connection):
        return None
    for (document_id,) in connection.execute(_OTHER_TEXT):
        return f"document {document_id!r} is linked to the text of another document"
    common = read_common_text(connection)
    held: dict[int, set[int]] = {}
    for text_id, band in connection.execute(_BANDS):
        held.setdefault(text_id, set()).add(band)
    last = 0
    while rows := connection.execute(_SIGNED_TEXTS, (last,)).fetchall():
        for text_id, packed, text in rows:
            if text is None:
                return f"text {text_id} belongs to no document"
            signature = unpack(packed)
            if signature.tolist() != sign(text, common).tolist() and not _is_changing(text, common):
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
            member = waiting.pop()
            if families[member] != text_id:
                return f"text {member} is in family {families[member]}, not in family {text_id}"
            new = [other for other in links.get(member, ()) if other not in seen]
            seen.update(new)
            waiting += new
    return None


def _is_changing(text: str, common: CommonText) -> bool:
    """Return whether a text may still be counted as before its common text was measured."""
    return common.is_changing(hash_words(words_of(text)))


_ROWS_A_CALL = 500
_NEXT_ALIGNED = """
SELECT vector_id FROM alignment_blocks WHERE space_id = ? AND vector_id > ?
ORDER BY vector_id LIMIT ?"""


def alignment_problem(connection: sqlite3.Connection) -> str | None:
    """Check the checksums of the space and of every row, and that no document is missing.

    A store that was never given a space has nothing to check.
    """
    row = find_space(connection)
    if row is None:
        return None
    dimension = load_space(connection, row.space_id).dimension
    last = -1
    while ids := _aligned_after(connection, row.space_id, last):
        _, damaged = read_aligned_blocks(connection, row.space_id, dimension, ids)
        if damaged:
            return f"the blocks of vector id {damaged[0]} are damaged"
        last = ids[-1]
    pending = count_pending(connection, row.space_id)
    return f"{pending} documents with block vectors are not in it" if pending else None


def _aligned_after(connection: sqlite3.Connection, space_id: int, last: int) -> list[int]:
    return [row[0] for row in connection.execute(_NEXT_ALIGNED, (space_id, last, _ROWS_A_CALL))]


_DERIVED: dict[str, Callable[[sqlite3.Connection], str | None]] = {
    "lexical index": words_problem,
    "families": families_problem,
    "metadata values": metadata_problem,
    "alignment": alignment_problem,
}

"""Examine the document store: the database, every row of it, and the tables that follow from it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from index.alignment.alignment_index import damaged_blocks
from index.alignment.spaces import find_space, load_space
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import StoreError
from index.lexical.tables import LEXICAL_TABLES, read_added, read_last_term, read_statistics
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from index.store.checksums import find_damage
from index.store.filters import metadata_values
from index.store.schema import STORE

# The tables that `index.doctor.repair` makes again; it copies the others.
DERIVED_TABLES = frozenset({*LEXICAL_TABLES, "alignment_spaces", "metadata_values", "common_marks"})
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
        if (application, version) != (STORE.application_id, STORE.version):
            problem = f"is not a store of format {STORE.version} (it says {version})"
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


def space_problem(connection: sqlite3.Connection) -> str | None:
    """Read the alignment space; a store that was never given one has nothing to check."""
    row = find_space(connection)
    if row is not None:
        load_space(connection, row.space_id)
    return None


def follower_problem(connection: sqlite3.Connection) -> str | None:
    """Let SQLite check the file of a follower, and compare aligned blocks with their checksums."""
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        return str(problem)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    damaged = damaged_blocks(connection) if "aligned_blocks" in tables else ()
    return f"{len(damaged)} rows, vector id {damaged[0]} first" if damaged else None


_DERIVED: dict[str, Callable[[sqlite3.Connection], str | None]] = {
    "lexical index": words_problem,
    "metadata values": metadata_problem,
    "alignment": space_problem,
}

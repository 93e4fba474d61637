"""What follows from the documents: the doctor finds what is wrong with it, and rebuilds it."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import neutral_space
from index.doctor import repair
from index.doctor.findings import Remedy
from index.doctor.store_checks import (
    alignment_problem,
    examine_derived,
    families_problem,
    problem_of,
)
from index.lexical.tables import LEXICAL_TABLES
from index.lexical.terms import count_terms
from index.progress import SilentProgress
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry, OpenStore
from tests.kit.paragraphs import entry_of, families_in

FIRST = list(range(10))
DOCUMENTS = {"first": FIRST, "copy": FIRST, "edited": [*FIRST[:8], 100, 101], "other": [50, 51, 52]}
FAMILY = {frozenset({"first", "copy", "edited"})}


@pytest.fixture
def filled(store: SQLiteDocumentStore) -> Path:
    store.put([entry_of(name, paragraphs) for name, paragraphs in DOCUMENTS.items()])
    assert families_in(store) == FAMILY
    store.close()
    return store.path


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE texts SET signature = zeroblob(512) WHERE text_id = 1", "signature of text 1"),
        ("UPDATE texts SET signature = 'abc' WHERE text_id = 2", "signature of a text is damaged"),
        (
            "UPDATE texts SET content_hash = x'00' WHERE text_id = 3",
            "document 'other' is linked to the text of another document",
        ),
        (
            "UPDATE document_texts SET text_id = 3 WHERE vector_id = 1",
            "document 'first' is linked to the text of another document",
        ),
        (
            "UPDATE document_texts SET text_id = 9 WHERE vector_id = 1",
            "document 'first' is linked to the text of another document",
        ),
        ("DELETE FROM document_texts WHERE vector_id = 4", "text 3 belongs to no document"),
        ("DELETE FROM text_bands WHERE text_id = 2", "bands of text 2"),
        ("UPDATE text_bands SET text_id = 9 WHERE text_id = 3", "bands of text 3"),
        ("INSERT INTO text_bands VALUES (5, 9)", "bands of 1 missing texts, 9 first"),
        ("DELETE FROM text_links WHERE text_id = 2", "1 links exist in one direction only"),
        ("UPDATE texts SET family = 3 WHERE text_id = 2", "text 2 is in family 3"),
        ("DELETE FROM text_links", "text 2 is in family 1"),
        ("DROP TABLE text_links", "no such table"),
    ],
)
def test_what_is_wrong_is_reported(filled: Path, statement: str, problem: str) -> None:
    sql(filled, statement)
    assert problem in (problem_of(filled, families_problem) or "")
    assert Remedy.REBUILD in {finding.remedy for finding in examine_derived(filled)}


def test_texts_not_looked_at_are_no_finding(open_store: OpenStore) -> None:
    store = open_store(find_families=False)
    store.put([entry_of(name, paragraphs) for name, paragraphs in DOCUMENTS.items()])
    assert problem_of(store.path, families_problem) is None


ALIGNED = 600  # more than are checked at a time


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is aligned once; do not change it."""
    path = tmp_path_factory.mktemp("sound") / "store.sqlite3"
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    with closing(SQLiteDocumentStore(path, **about)) as store:
        store.alignment.start_with(neutral_space(DIMENSION))
        store.put([entry_of(f"d{n}", [n % 50, n % 7], blocks=n > 0) for n in range(ALIGNED)])
    return path


@pytest.fixture
def aligned(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound.parent, tmp_path, dirs_exist_ok=True)) / sound.name


def test_a_store_without_a_space_has_nothing_to_check(store: SQLiteDocumentStore) -> None:
    store.put([entry_of("a", [1])])
    assert problem_of(store.path, alignment_problem) is None


ALIGNMENT_DAMAGES = [
    ("UPDATE alignment_blocks SET content = zeroblob(24) WHERE vector_id = 7", "vector id 7 are"),
    ("UPDATE alignment_blocks SET content = 'text' WHERE vector_id = 599", "vector id 599 are"),
    ("UPDATE alignment_blocks SET checksum = 0 WHERE vector_id = 3", "vector id 3 are damaged"),
    ("DELETE FROM alignment_blocks WHERE vector_id IN (5, 9)", "2 documents with block vectors"),
    ("UPDATE alignment_spaces SET content = x'00'", "alignment space 1 is missing or damaged"),
    ("DROP TABLE alignment_blocks", "no such table: alignment_blocks"),
    ("DROP TABLE alignment_spaces", "no such table: alignment_spaces"),
]


@pytest.mark.parametrize(("statement", "problem"), ALIGNMENT_DAMAGES)
def test_what_is_wrong_is_found_and_made_again(
    aligned: Path, open_store: OpenStore, tmp_path: Path, statement: str, problem: str
) -> None:
    ids = list(range(2, ALIGNED + 1))
    with closing(open_store(aligned)) as store:
        before = store.alignment.read(ids)
        assert before is not None
    sql(aligned, statement)
    assert problem in (problem_of(aligned, alignment_problem) or "")
    repair.copy_truth(aligned, copy := tmp_path / "copy.sqlite3")
    store = open_store(copy)
    store.alignment.start_with(neutral_space(DIMENSION))
    assert store.alignment.pending() == ALIGNED - 1
    store.alignment.refresh(SilentProgress(), fit=False)
    assert problem_of(copy, alignment_problem) is None
    after = store.alignment.read(ids)
    assert after is not None
    assert set(after.blocks) == set(before.blocks) == set(ids)
    for vector_id in ids:
        np.testing.assert_array_equal(after.blocks[vector_id].codes, before.blocks[vector_id].codes)
        np.testing.assert_array_equal(
            after.blocks[vector_id].hubness, before.blocks[vector_id].hubness
        )


INDEXED = 600  # more than one transaction takes


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in statements:
            connection.execute(statement)


def text_of(number: int) -> str:
    return f"common {'even' if number % 2 == 0 else 'odd'} w{number}"


@pytest.fixture
def indexed(store: SQLiteDocumentStore, entry: MakeEntry) -> Path:
    store.put([entry(f"d{n}", text_of(n)) for n in range(INDEXED)])
    store.delete(["d1"])
    store.close()
    return store.path


def remade(path: Path) -> Path:
    copy = path.with_name("copy.sqlite3")
    repair.copy_truth(path, copy)
    repair.derive(copy, SilentProgress())
    return copy


@pytest.mark.parametrize("lost", [LEXICAL_TABLES, LEXICAL_TABLES[:1], ()])
def test_words_and_values_are_made_again(indexed: Path, lost: tuple[str, ...]) -> None:
    run_sql(indexed, *(f"DROP TABLE {table}" for table in lost))
    run_sql(indexed, "DELETE FROM documents WHERE id = 'd77'")  # its words stay behind
    copy = remade(indexed)
    left = (text_of(n) for n in range(INDEXED) if n not in (1, 77))
    expected = Counter(term for text in left for term in count_terms(text))
    assert expected["common"] == INDEXED - 2
    assert expected["common odd"] == INDEXED // 2 - 2
    assert dict(sql(copy, "SELECT term, documents FROM terms")) == expected
    assert sql(copy, "SELECT documents FROM term_statistics") == [(INDEXED - 2,)]
    values = "SELECT * FROM metadata_values"
    assert sql(copy, values) == sql(indexed, values)
    assert list(examine_derived(copy)) == []


def test_titles_named_by_texts_are_indexed(open_store: OpenStore, entry: MakeEntry) -> None:
    """As a pass over all texts leaves them: those of documents that came later, too."""
    counts = "SELECT term, documents FROM terms ORDER BY 1"
    store = open_store()
    store.put([entry("a", "all about grey herons and reeds", "Wetlands")])
    store.put([entry("b", "birds of wetlands", "Grey herons")])
    store.refresh_titles(SilentProgress())
    store.close()
    before = sql(store.path, counts)
    assert sum(term.startswith('"') for term, _ in before) == 2
    copy = remade(store.path)
    assert sql(copy, counts) == before
    again = open_store(copy)
    assert again.changes_since_title_refresh() == 0
    again.refresh_titles(SilentProgress())
    assert sql(copy, counts) == before


def test_the_copy_gives_no_vector_id_twice(indexed: Path, open_store: OpenStore) -> None:
    last = sql(indexed, "SELECT max(vector_id) FROM documents")[0][0]
    with closing(open_store(indexed)) as store:
        store.delete([f"d{INDEXED - 1}"])
        sequence = store.sequence
    with closing(open_store(remade(indexed))) as store:
        assert store.log.last_vector_id == last
        assert store.sequence == sequence + 1

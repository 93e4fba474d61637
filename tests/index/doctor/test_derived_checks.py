"""What follows from the documents: the doctor finds what is wrong with it, and rebuilds it."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from encoder.alignment.space import neutral_space
from index.doctor import repair
from index.doctor.examine import Remedy, examine_derived, follower_problem, problem_of
from index.lexical.tables import LEXICAL_TABLES
from index.lexical.terms import count_terms_and_titles
from index.progress import SilentProgress
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import DIMENSION, MakeEntry, OpenStore
from tests.kit.paragraphs import entry_of

ALIGNED = 9


@pytest.fixture
def aligned(open_store: OpenStore) -> SQLiteDocumentStore:
    store = open_store(space=neutral_space(DIMENSION))
    store.put([entry_of(f"d{n}", [n % 50, n % 7], blocks=n > 0) for n in range(ALIGNED)])
    store.close()
    return store


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE aligned_blocks SET content = zeroblob(24) WHERE vector_id = 7", "vector id 7"),
        ("UPDATE aligned_blocks SET content = 'text' WHERE vector_id = 9", "vector id 9"),
        ("UPDATE aligned_blocks SET checksum = 0 WHERE vector_id = 3", "1 rows, vector id 3"),
    ],
)
def test_damage_of_a_follower_is_found(
    aligned: SQLiteDocumentStore, statement: str, problem: str
) -> None:
    assert problem_of(aligned.alignment.path, follower_problem) is None
    sql(aligned.alignment.path, statement)
    assert problem in (problem_of(aligned.alignment.path, follower_problem) or "")


def test_a_damaged_space_is_found(aligned: SQLiteDocumentStore) -> None:
    assert list(examine_derived(aligned.path)) == []
    sql(aligned.path, "UPDATE alignment_spaces SET content = x'00'")
    [finding] = examine_derived(aligned.path)
    assert "alignment space 1 is missing or damaged" in finding.problem
    assert finding.remedy == Remedy.REBUILD


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
    expected = Counter(term for text in left for term in count_terms_and_titles(text))
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

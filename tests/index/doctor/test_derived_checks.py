"""What follows from the documents: the doctor finds what is wrong with it, and rebuilds it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from encoder.alignment.space import neutral_space
from index.doctor import repair
from index.doctor.examine import Remedy, examine_derived, follower_problem, problem_of
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


def test_values_are_made_again(indexed: Path) -> None:
    run_sql(indexed, "DELETE FROM documents WHERE id = 'd77'")
    copy = remade(indexed)
    values = "SELECT * FROM metadata_values"
    assert sql(copy, values) == sql(indexed, values)
    assert list(examine_derived(copy)) == []


def test_the_copy_gives_no_vector_id_twice(indexed: Path, open_store: OpenStore) -> None:
    last = sql(indexed, "SELECT max(vector_id) FROM documents")[0][0]
    with closing(open_store(indexed)) as store:
        store.delete([f"d{INDEXED - 1}"])
        sequence = store.sequence
    with closing(open_store(remade(indexed))) as store:
        assert store.log.last_vector_id == last
        assert store.sequence == sequence + 1

"""What follows from the documents: the doctor finds what is wrong with it, and rebuilds it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from encoder.alignment.space import neutral_space
from index.doctor import space_problem
from index.store.checksums import Damage, find_damage
from index.store.document_store import DocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import DIMENSION, MakeEntry, OpenStore
from tests.kit.paragraphs import entry_of

ALIGNED = 9


@pytest.fixture
def aligned(open_store: OpenStore) -> DocumentStore:
    store = open_store(space=neutral_space(DIMENSION))
    store.put([entry_of(f"d{n}", [n % 50, n % 7], blocks=n > 0) for n in range(ALIGNED)])
    store.close()
    return store


def test_a_damaged_space_is_found(aligned: DocumentStore) -> None:
    with closing(sqlite3.connect(aligned.path)) as connection:
        space_problem(connection)
        connection.execute("UPDATE alignment_spaces SET content = x'00'")
        with pytest.raises(ValueError, match="alignment space 1 is missing or damaged"):
            space_problem(connection)


SECOND = "(SELECT vector FROM vectors WHERE vector_id = 2)"
TEXTUAL = ("title = 'Bee'", "metadata = '{\"a\": 1}'", "id = 'b2'", "text = 'two'", "tokens = 9")


@pytest.mark.parametrize("change", TEXTUAL)
def test_a_changed_document_is_found(aligned: DocumentStore, change: str) -> None:
    sql(aligned.path, f"UPDATE documents SET {change} WHERE vector_id = 3")
    assert damage_of(aligned.path) == Damage({3: "b2" if "b2" in change else "d2"})


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE vectors SET vector = {SECOND} WHERE vector_id = 3",
        "UPDATE vectors SET sequence = 99 WHERE vector_id = 3",
        "DELETE FROM vectors WHERE vector_id = 3",
        "UPDATE block_vectors SET offsets = x'0000000005000000' WHERE vector_id = 3",
        "UPDATE block_vectors SET vectors = 'text' WHERE vector_id = 3",
        "DELETE FROM block_vectors WHERE vector_id = 3",
    ],
)
def test_a_changed_vector_is_found(aligned: DocumentStore, change: str) -> None:
    sql(aligned.path, change)
    assert damage_of(aligned.path) == Damage({}, {3: "d2"})


def test_what_is_described_again_is_sound(open_store: OpenStore, entry: MakeEntry) -> None:
    with closing(open_store()) as store:
        for title in ("", "A", "B"):
            store.put([entry("a", "text", title), entry("b", "other")])
        store.delete(["b"])
    assert damage_of(store.path) == Damage()


def damage_of(path: Path) -> Damage:
    with closing(sqlite3.connect(path)) as connection:
        return find_damage(connection)

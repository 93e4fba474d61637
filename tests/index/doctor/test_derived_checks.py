"""The doctor finds what is wrong with the tables of near-duplicates, and makes them again."""

from pathlib import Path

import pytest

from index.doctor.findings import Remedy
from index.doctor.store_checks import examine_database, examine_families
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.tools.index_fixtures import OpenStore
from tests.tools.paragraphs import entry_of, families_in

FIRST = list(range(10))
DOCUMENTS = {"first": FIRST, "copy": FIRST, "edited": [*FIRST[:8], 100, 101], "other": [50, 51, 52]}
FAMILY = {frozenset({"first", "copy", "edited"})}


@pytest.fixture
def filled(store: SQLiteDocumentStore) -> Path:
    store.put([entry_of(name, paragraphs) for name, paragraphs in DOCUMENTS.items()])
    assert families_in(store) == FAMILY
    store.close()
    return store.path


def test_nothing_is_wrong_with_a_sound_store(filled: Path) -> None:
    assert list(examine_families(filled)) == []
    assert list(examine_database(filled)) == []


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
    [finding] = examine_families(filled)
    assert problem in finding.problem
    assert finding.remedy == Remedy.FIND_FAMILIES


def test_texts_not_looked_at_are_no_finding(open_store: OpenStore) -> None:
    store = open_store(find_families=False)
    store.put([entry_of(name, paragraphs) for name, paragraphs in DOCUMENTS.items()])
    assert list(examine_families(store.path)) == []

"""The tables that follow from the documents are rebuilt from them, whatever is left of them."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from index.doctor.repair import (
    rebuild_checksums,
    rebuild_lexical_index,
    rebuild_metadata_values,
)
from index.errors import StoreError
from index.lexical.tables import LEXICAL_TABLES
from index.lexical.terms import count_terms
from index.progress import SilentProgress
from index.sqlite.connections import SQLiteConnections
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.tools.index_fixtures import MakeEntry, OpenStore

DOCUMENTS = 600  # more than one transaction takes


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in statements:
            connection.execute(statement)


def text_of(number: int) -> str:
    return f"common {'even' if number % 2 == 0 else 'odd'} w{number}"


@pytest.fixture
def filled(store: SQLiteDocumentStore, entry: MakeEntry) -> Path:
    store.put([entry(f"d{n}", text_of(n)) for n in range(DOCUMENTS)])
    store.delete(["d1"])
    store.close()
    return store.path


@pytest.mark.parametrize("lost", [LEXICAL_TABLES, LEXICAL_TABLES[:1], ()])
def test_the_lexical_index_is_rebuilt_whatever_is_left_of_it(
    filled: Path, lost: tuple[str, ...]
) -> None:
    run_sql(filled, *(f"DROP TABLE {table}" for table in lost))
    run_sql(filled, "DELETE FROM documents WHERE id = 'd77'")  # its words stay behind
    with closing(SQLiteConnections(filled, read_only=False)) as connections:
        rebuild_lexical_index(connections, SilentProgress())
    left = (text_of(n) for n in range(DOCUMENTS) if n not in (1, 77))
    expected = Counter(term for text in left for term in count_terms(text))
    assert expected["common"] == DOCUMENTS - 2
    assert expected["common odd"] == DOCUMENTS // 2 - 2
    assert dict(sql(filled, "SELECT term, documents FROM terms")) == expected
    assert sql(filled, "SELECT documents FROM term_statistics") == [(DOCUMENTS - 2,)]


def test_the_titles_that_texts_name_are_indexed_too(
    open_store: OpenStore, entry: MakeEntry
) -> None:
    """As a pass over all texts leaves them: those of documents that came later, too."""
    counts = "SELECT term, documents FROM terms ORDER BY 1"
    store = open_store()
    store.put([entry("a", "all about grey herons and reeds", "Wetlands")])
    store.put([entry("b", "birds of wetlands", "Grey herons")])
    store.refresh_titles(SilentProgress())
    store.close()
    before = sql(store.path, counts)
    assert sum(term.startswith('"') for term, _ in before) == 2
    with closing(SQLiteConnections(store.path, read_only=False)) as connections:
        rebuild_lexical_index(connections, SilentProgress())
    assert sql(store.path, counts) == before
    again = open_store()
    assert again.changes_since_title_refresh() == 0
    again.refresh_titles(SilentProgress())
    assert sql(store.path, counts) == before


@pytest.mark.parametrize("damaged", ["[", "5", '["ab", "c"]'])
def test_metadata_values_stay_where_the_metadata_is_damaged(
    store: SQLiteDocumentStore, entry: MakeEntry, damaged: str
) -> None:
    store.put([entry("a", year=2020), entry("b", year=2021)])
    store.close()
    run_sql(store.path, f"UPDATE documents SET metadata = '{damaged}' WHERE id = 'b'")
    before = sql(store.path, "SELECT * FROM metadata_values")
    with (
        closing(SQLiteConnections(store.path, read_only=False)) as connections,
        pytest.raises(StoreError, match="metadata of a document is damaged"),
        connections.writing() as connection,
    ):
        rebuild_metadata_values(connection, store.path)
    assert sql(store.path, "SELECT * FROM metadata_values") == before != []


def test_checksums_are_rebuilt(filled: Path) -> None:
    everything = "SELECT * FROM checksums ORDER BY vector_id"
    before = sql(filled, everything)
    assert len(before) == DOCUMENTS - 1
    run_sql(filled, "UPDATE checksums SET vector = 0")
    with closing(SQLiteConnections(filled, read_only=False)) as connections:
        rebuild_checksums(connections)
    assert sql(filled, everything) == before

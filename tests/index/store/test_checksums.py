"""A changed row is an error that names it, and every other row is still read."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import StoreError
from index.sqlite.block_vectors import BlockVectors
from index.store.checksums import summary_checksum
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry


@pytest.fixture
def filled(store: SQLiteDocumentStore, entry: MakeEntry) -> SQLiteDocumentStore:
    blocks = BlockVectors(np.array([[0, 4]]), np.eye(8, dtype=np.float32)[:1])
    entries = [entry("a", "one", "A"), entry("b", "two", "B"), entry("c", "three", "C")]
    store.put([replace(entry, blocks=blocks) for entry in entries])
    store.put([entry("b", "two", "B again")])  # a title of its own later
    return store


READS: dict[str, Callable[[SQLiteDocumentStore, int], object]] = {
    "get": lambda store, number: store.get([number]),
    "find": lambda store, number: store.find(["abc"[number - 1]]),
    "vectors": lambda store, number: store.vectors([number]),
    "block_vectors": lambda store, number: store.block_vectors([number]),
}
CHANGES = [
    ("UPDATE documents SET title = 'Bee' WHERE vector_id = 2", {"get", "find"}),
    ("UPDATE documents SET metadata = '{\"a\": 1}' WHERE vector_id = 2", {"get", "find"}),
    ("UPDATE documents SET id = 'b2' WHERE vector_id = 2", {"get"}),
    ("UPDATE documents SET text = 'twp' WHERE vector_id = 2", {"find"}),
    ("UPDATE documents SET tokens_read = 1 WHERE vector_id = 2", {"find"}),
    ("UPDATE documents SET indexed_at = 'now' WHERE vector_id = 2", {"find"}),
    (
        "UPDATE vectors SET vector = (SELECT vector FROM vectors WHERE vector_id = 1) "
        "WHERE vector_id = 2",
        {"vectors"},
    ),
    (
        "UPDATE block_vectors SET offsets = x'0000000005000000' WHERE vector_id = 2",
        {"block_vectors"},
    ),
]


@pytest.mark.parametrize(("change", "noticed"), CHANGES)
def test_a_changed_row_is_refused(
    filled: SQLiteDocumentStore, change: str, noticed: set[str]
) -> None:
    sql(filled.path, change)
    for name, read in READS.items():
        for other in (1, 3):
            assert read(filled, other)
        if name in noticed:
            with pytest.raises(StoreError, match=r"damaged in its .*; run longmatch doctor"):
                read(filled, 2)
        else:
            read(filled, 2)


def test_deleted_documents_take_their_checksums_along(filled: SQLiteDocumentStore) -> None:
    filled.delete(["a", "b"])
    assert sql(filled.path, "SELECT vector_id FROM checksums") == [(3,)]


@given(st.text(), st.text(), st.text())
def test_fields_do_not_run_into_each_other(first: str, second: str, more: str) -> None:
    if more:
        assert summary_checksum((1, first + more, second)) != summary_checksum(
            (1, first, more + second)
        )

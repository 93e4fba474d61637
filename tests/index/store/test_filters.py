"""Filters: what SQLite keeps for them, and how they are written."""

import json

import pytest
from hypothesis import given

from index.store.document_store import SQLiteDocumentStore
from index.store.filters import (
    Bound,
    Filter,
    Range,
    filter_from_json,
    filter_to_json,
)
from tests.index.conftest import sql
from tests.tools.filter_cases import FILTERS
from tests.tools.index_fixtures import MakeEntry, OpenStore

TABLE = "SELECT * FROM metadata_values"


def test_nothing_is_left_of_documents_that_are_gone(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    store.put([entry("a", a=1, b=[1, "x", None], c={"d": True}), entry("b", a=2)])
    assert len(sql(store.path, TABLE)) == 7
    store.put([entry("a", a=3)])
    assert {row[:3] for row in sql(store.path, TABLE)} == {("/a", 2, 3), ("/a", 2, 2)}
    store.put([entry("a", "another text", a=4)])
    assert {row[:3] for row in sql(store.path, TABLE)} == {("/a", 2, 4), ("/a", 2, 2)}
    store.delete(["a", "b"])
    assert sql(store.path, TABLE) == []


def test_damaged_metadata_can_be_deleted(open_store: OpenStore, entry: MakeEntry) -> None:
    store = open_store()
    store.put([entry("a", a=1), entry("b", a=2)])
    sql(store.path, "UPDATE documents SET metadata = '[1' WHERE id = 'a'")
    store.delete(["a"])
    assert [row[:3] for row in sql(store.path, TABLE)] == [("/a", 2, 2)]


@pytest.mark.parametrize(
    ("low", "high", "complaint"),
    [
        (None, None, "needs a bound"),
        (Bound(True, True), None, "a number or a text"),
        (Bound(1, True), Bound("a", True), "different types"),
    ],
)
def test_a_range_that_says_nothing_is_refused(
    low: Bound | None, high: Bound | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Range("/a", low, high)


@given(FILTERS)
def test_a_filter_comes_back_from_json(where: Filter) -> None:
    read = filter_from_json(json.loads(json.dumps(filter_to_json(where))))
    assert repr(read) == repr(where)  # 1 equals true in Python

"""Filters: what a store selects and what is checked in memory, against the rules read plainly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.document import MAX_METADATA_LEVELS
from index.store import filters
from index.store.document_store import DocumentStore
from tests.kit.filter_cases import FILTERS, METADATA, expected
from tests.kit.index_fixtures import MakeEntry


def selected(store: DocumentStore, where: filters.Filter | None, *without: str) -> set[str]:
    """Return the ids of the documents that a filter selects, all stored ones being asked."""
    selection = store.select(where, without)
    ids = np.array(store.log.added_after(0)[1])
    return {summary.id for summary in store.get(ids[selection.contains(ids)].tolist()).values()}


@given(
    documents=st.lists(METADATA, min_size=1, max_size=8),
    changed=st.dictionaries(st.integers(0, 9), METADATA | st.none(), max_size=3),
    wheres=st.lists(FILTERS, min_size=1, max_size=8),
)
def test_a_filter_selects_what_the_rules_say(
    store: DocumentStore,
    entry: MakeEntry,
    documents: list[Any],
    changed: dict[int, Any],
    wheres: list[filters.Filter],
) -> None:
    """Also after metadata was changed, with the text or without, and documents were deleted."""
    store.delete([f"d{number}" for number in range(10)])
    held = {f"d{number}": metadata for number, metadata in enumerate(documents)}
    store.put([entry(name, **{"metadata": {}}) for name in held])
    store.put([entry(name, **metadata) for name, metadata in held.items()])
    for number, metadata in changed.items():
        name = f"d{number}"
        if metadata is None:
            store.delete([name])
            held.pop(name, None)
        else:
            store.put([entry(name, f"text {number % 2}", **metadata)])
            held[name] = metadata
    for where in wheres:
        right = {name for name, metadata in held.items() if expected(where, metadata)}
        assert selected(store, where) == right
        assert {
            name for name, metadata in held.items() if filters.matches(where, metadata)
        } == right
        assert selected(store, where, "d0", "d9", "unknown") == right - {"d0", "d9"}
    assert selected(store, None) == set(held)


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("value", [2, 2.5, "ab"])
def test_a_bound_itself_is_within_if_it_is_inclusive(
    store: DocumentStore, entry: MakeEntry, value: Any, inclusive: bool
) -> None:
    store.put([entry("a", a=value)])
    for where in (
        filters.Range("/a", low=filters.Bound(value, inclusive)),
        filters.Range("/a", high=filters.Bound(value, inclusive)),
    ):
        assert filters.matches(where, {"a": value}) == inclusive
        assert selected(store, where) == ({"a"} if inclusive else set())


def test_integers_beyond_every_float_have_their_sign(
    store: DocumentStore, entry: MakeEntry
) -> None:
    store.put([entry("high", a=10**400), entry("low", a=-(10**400))])
    assert selected(store, filters.Range("/a", low=filters.Bound(0, True))) == {"high"}
    assert selected(store, filters.Range("/a", high=filters.Bound(0, True))) == {"low"}


def test_a_vector_of_later_is_in_no_selection(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("a", year=2020), entry("b", year=2021)])
    selection = store.select(filters.Not(filters.OneOf("/year", (2020,))))
    change = store.put([entry("c", "new", year=2020)])
    assert selection.contains(np.array([1, 2, *change.changed])).tolist() == [False, True, False]


def test_an_empty_store_selects_nothing(store: DocumentStore) -> None:
    for where in (None, filters.Exists("/a"), filters.Not(filters.Exists("/a"))):
        assert not store.select(where).contains(np.arange(1, 5)).any()


def test_deeply_nested_values_are_not_found(store: DocumentStore, entry: MakeEntry) -> None:
    deep: Any = 1
    for _ in range(filters.MAX_NESTING + 2):
        deep = {"a": deep}
    lists: Any = 1
    for _ in range(MAX_METADATA_LEVELS - 1):
        lists = [lists]
    store.put([entry("d", deep=deep, lists=lists, **{"n" * filters.MAX_FIELD_CHARACTERS: 1})])
    values = filters.metadata_values(store.find(["d"])["d"].document.metadata)
    assert len(values) == filters.MAX_NESTING + 1
    assert selected(store, filters.Exists("/lists")) == {"d"}
    assert selected(store, filters.Exists("/deep" + "/a" * (filters.MAX_NESTING - 1))) == {"d"}
    assert selected(store, filters.Exists("/deep" + "/a" * (filters.MAX_NESTING + 1))) == set()
    store.delete(["d"])
    assert selected(store, filters.Exists("/lists")) == set()


@pytest.mark.parametrize("field", ["/x' OR 1=1 --", '/"', "/%", "/_", "/[*]", "/$.a", "/\x00"])
def test_a_field_is_no_sql_statement(store: DocumentStore, entry: MakeEntry, field: str) -> None:
    store.put([entry("a", a=1), entry("b", **{field[1:]: "x' OR 1=1 --"})])
    assert selected(store, filters.Exists(field)) == {"b"}
    assert selected(store, filters.OneOf(field, ("x' OR 1=1 --",))) == {"b"}
    assert selected(store, filters.OneOf(field, ("x", "%", "*"))) == set()


def values(store: DocumentStore) -> set[tuple[str, int, bytes]]:
    """Return the rows that filters read, without the vector ids."""
    with store.connections.reading() as connection:
        return {row[:3] for row in connection.execute("SELECT * FROM metadata_values")}


def a(value: int) -> tuple[str, int, bytes]:
    return ("/a", filters.NUMBER, filters.stored(value))


def test_values_of_deleted_documents_go(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("a", a=1, b=[1, "x", None], c={"d": True}), entry("b", a=2)])
    assert len(values(store)) == 7
    store.put([entry("a", a=3)])
    assert values(store) == {a(3), a(2)}
    store.put([entry("a", "another text", a=4)])
    assert values(store) == {a(4), a(2)}
    store.delete(["a", "b"])
    assert values(store) == set()


def test_damaged_metadata_can_be_deleted(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("a", a=1), entry("b", a=2)])
    with store.connections.writing() as connection:
        connection.execute("UPDATE documents SET metadata = '[1' WHERE id = 'a'")
    store.delete(["a"])
    assert values(store) == {a(2)}


@pytest.mark.parametrize(
    ("low", "high", "complaint"),
    [
        (None, None, "needs a bound"),
        (filters.Bound(True, True), None, "a number or a text"),
        (filters.Bound(1, True), filters.Bound("a", True), "different types"),
    ],
)
def test_a_bad_range_is_refused(
    low: filters.Bound | None, high: filters.Bound | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        filters.Range("/a", low, high)

"""Filters: what SQLite selects and what is checked in memory, against the rules read plainly."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.document import MAX_METADATA_LEVELS
from index.store.document_store import SQLiteDocumentStore
from index.store.filters import (
    And,
    Bound,
    Exists,
    Filter,
    Not,
    OneOf,
    Or,
    Range,
    filter_from_json,
    filter_to_json,
    matches,
)
from index.store.metadata import MAX_FIELD_CHARACTERS, MAX_NESTING, metadata_values
from index.store.records import EncodedDocument

MakeEntry = Callable[..., EncodedDocument]
OpenStore = Callable[..., SQLiteDocumentStore]

LONG = "é" * 512
SCALARS: list[Any] = [
    *(0, 1, -1, 2, 1.0, 0.5, -0.0, 1e300, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63)),
    *(True, False, "", "1", "true", "a", "A", "ab", "ü", "\x00", "a\x00b", "𝄞", "\uffff", LONG),
]
STORED = st.recursive(
    st.sampled_from([*SCALARS, None, 2**70, -(2**70), 10**400, LONG + "é", LONG + "z"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("ab"), parts),
    max_leaves=6,
)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", "ü"]), STORED, max_size=4)
FIELDS = st.sampled_from(["/a", "/b", "/a~1b", "/~0", "/ü", "/a/a", "/a/b", "/b/a/b", "/c"])
NUMBERS = st.sampled_from([one for one in SCALARS if type(one) in (int, float)])
TEXTS = st.sampled_from([one for one in SCALARS if type(one) is str])


def bounds(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Bound | None]:
    return st.none() | st.builds(Bound, values, st.booleans())


RANGES = (
    st.tuples(
        FIELDS,
        st.tuples(bounds(NUMBERS), bounds(NUMBERS)) | st.tuples(bounds(TEXTS), bounds(TEXTS)),
    )
    .filter(lambda pair: pair[1] != (None, None))
    .map(lambda pair: Range(pair[0], *pair[1]))
)
CONDITIONS = st.one_of(
    st.builds(OneOf, FIELDS, st.lists(st.sampled_from(SCALARS), max_size=4).map(tuple)),
    RANGES,
    st.builds(Exists, FIELDS),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda parts: st.one_of(
        st.builds(And, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=6,
)


def at(value: Any, names: list[str]) -> list[Any]:
    """Return what stands at a path, itself and the elements of lists; nothing for null."""
    if isinstance(value, list):
        inside = [one for part in value for one in at(part, names)]
        return inside if names else [value, *inside]
    if not names:
        return [] if value is None else [value]
    return at(value.get(names[0]), names[1:]) if isinstance(value, dict) else []


def family(value: Any) -> Any:
    return {bool: bool, int: float, float: float, str: str}.get(type(value))


def within(value: Any, where: Range) -> bool:
    return all(
        family(value) == family(bound.value)
        and (more(value, bound.value) or (bound.inclusive and value == bound.value))
        for bound, more in ((where.low, lambda a, b: a > b), (where.high, lambda a, b: a < b))
        if bound is not None
    )


def expected(where: Filter, metadata: Any) -> bool:
    """Read the rules without any of the code that is tested."""
    match where:
        case And(parts):
            return all(expected(part, metadata) for part in parts)
        case Or(parts):
            return any(expected(part, metadata) for part in parts)
        case Not(part):
            return not expected(part, metadata)
    names = [name.replace("~1", "/").replace("~0", "~") for name in where.field.split("/")[1:]]
    found = at(metadata, names)
    match where:
        case OneOf(_, values):
            return any(
                family(one) is not None and family(one) == family(value) and one == value
                for one in found
                for value in values
            )
        case Range():
            return any(within(one, where) for one in found)
    return bool(found)


def selected(store: SQLiteDocumentStore, where: Filter | None, *without: str) -> set[str]:
    """Return the ids of the documents that a filter selects, all stored ones being asked."""
    selection = store.select(where, without)
    ids = np.array(store.changes_since(0).added)
    return {one.id for one in store.get(ids[selection.contains(ids)].tolist()).values()}


def table_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM metadata_values").fetchall()


@given(
    documents=st.lists(METADATA, min_size=1, max_size=8),
    changed=st.dictionaries(st.integers(0, 9), METADATA | st.none(), max_size=3),
    wheres=st.lists(FILTERS, min_size=1, max_size=8),
)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_filter_selects_what_the_rules_say(
    store: SQLiteDocumentStore,
    entry: MakeEntry,
    documents: list[Any],
    changed: dict[int, Any],
    wheres: list[Filter],
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
        assert {name for name, one in held.items() if matches(where, one)} == right
        assert selected(store, where, "d0", "d9", "unknown") == right - {"d0", "d9"}
    assert selected(store, None) == set(held)


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("value", [2, 2.5, "ab"])
def test_a_bound_itself_is_within_if_it_is_inclusive(
    store: SQLiteDocumentStore, entry: MakeEntry, value: Any, inclusive: bool
) -> None:
    store.put([entry("a", a=value)])
    for where in (
        Range("/a", low=Bound(value, inclusive)),
        Range("/a", high=Bound(value, inclusive)),
    ):
        assert matches(where, {"a": value}) == inclusive
        assert selected(store, where) == ({"a"} if inclusive else set())


def test_nothing_is_left_of_documents_that_are_gone(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    store.put([entry("a", a=1, b=[1, "x", None], c={"d": True}), entry("b", a=2)])
    assert len(table_of(store.path)) == 7
    store.put([entry("a", a=3)])
    assert {row[:3] for row in table_of(store.path)} == {("/a", 2, 3), ("/a", 2, 2)}
    store.put([entry("a", "another text", a=4)])
    assert {row[:3] for row in table_of(store.path)} == {("/a", 2, 4), ("/a", 2, 2)}
    store.delete(["a", "b"])
    assert table_of(store.path) == []


def test_a_vector_of_later_is_in_no_selection(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    store.put([entry("a", year=2020), entry("b", year=2021)])
    selection = store.select(Not(OneOf("/year", (2020,))))
    change = store.put([entry("c", "new", year=2020)])
    assert selection.contains(np.array([1, 2, *change.added])).tolist() == [False, True, False]


def test_an_empty_store_selects_nothing(store: SQLiteDocumentStore) -> None:
    for where in (None, Exists("/a"), Not(Exists("/a"))):
        assert not store.select(where).contains(np.arange(1, 5)).any()


def test_what_lies_too_deep_is_not_found_and_does_no_harm(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    deep: Any = 1
    for _ in range(MAX_NESTING + 2):
        deep = {"a": deep}
    lists: Any = 1
    for _ in range(MAX_METADATA_LEVELS - 1):
        lists = [lists]
    store.put([entry("d", deep=deep, lists=lists, **{"n" * MAX_FIELD_CHARACTERS: 1})])
    values = metadata_values(store.find(["d"])["d"].document.metadata)
    assert len(values) == MAX_NESTING + 1
    assert selected(store, Exists("/lists")) == {"d"}
    assert selected(store, Exists("/deep" + "/a" * (MAX_NESTING - 1))) == {"d"}
    assert selected(store, Exists("/deep" + "/a" * (MAX_NESTING + 1))) == set()
    store.delete(["d"])
    assert table_of(store.path) == []


@pytest.mark.parametrize("field", ["/x' OR 1=1 --", '/"', "/%", "/_", "/[*]", "/$.a", "/\x00"])
def test_a_field_is_a_name_and_never_a_statement(
    store: SQLiteDocumentStore, entry: MakeEntry, field: str
) -> None:
    store.put([entry("a", a=1), entry("b", **{field[1:]: "x' OR 1=1 --"})])
    assert selected(store, Exists(field)) == {"b"}
    assert selected(store, OneOf(field, ("x' OR 1=1 --",))) == {"b"}
    assert selected(store, OneOf(field, ("x", "%", "*"))) == set()


def test_many_values_at_once(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    store.put([entry(f"d{n}", n=n) for n in range(50)])
    many = OneOf("/n", tuple(range(10, 5_000)))
    assert selected(store, many) == {f"d{n}" for n in range(10, 50)}


def test_damaged_metadata_can_be_deleted(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    store = open_store()
    store.put([entry("a", a=1), entry("b", a=2)])
    with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection, connection:
        connection.execute("UPDATE documents SET metadata = '[1' WHERE id = 'a'")
    store.delete(["a"])
    assert [row[:3] for row in table_of(store.path)] == [("/a", 2, 2)]


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


def test_the_metadata_comes_back_as_it_was(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    metadata = {"a": [1, {"b": None}], "ü": 0.1, "t": LONG * 3}
    store.put([entry("a", **metadata)])
    assert json.dumps(store.find(["a"])["a"].document.metadata, sort_keys=True) == json.dumps(
        metadata, sort_keys=True
    )


@given(FILTERS)
def test_a_filter_comes_back_from_json(where: Filter) -> None:
    read = filter_from_json(json.loads(json.dumps(filter_to_json(where))))
    assert repr(read) == repr(where)  # 1 equals true in Python

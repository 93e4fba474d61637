"""Selections are sets of ids, whichever way round they are written."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.id_set import IdSet, complement, intersection, union
from index.store import filter_sql as selection_cache
from index.store.document_store import SQLiteDocumentStore
from index.store.filters import OneOf, SelectionCache
from index.store.records import EncodedDocument

END = 12
EVERY_ID = np.arange(-2, END + 3)
IDS = st.sets(st.integers(0, END - 1))
SELECTIONS = st.builds(
    lambda ids, inverted: IdSet(END, np.array(sorted(ids), dtype=np.int64), inverted),
    IDS,
    st.booleans(),
)


def members(one: IdSet) -> set[int]:
    listed = set(one.ids.tolist())
    return set(range(one.end)) - listed if one.inverted else listed


@given(one=SELECTIONS, other=SELECTIONS)
def test_they_are_joined_as_sets_are(one: IdSet, other: IdSet) -> None:
    assert members(intersection(one, other)) == members(one) & members(other)
    assert members(union(one, other)) == members(one) | members(other)
    assert members(complement(one)) == set(range(END)) - members(one)
    for joined in (intersection(one, other), union(one, other)):
        assert joined.ids.tolist() == sorted(set(joined.ids.tolist()))
        assert joined.ids.dtype == np.int64


@given(one=SELECTIONS)
def test_what_they_contain(one: IdSet) -> None:
    contained = EVERY_ID[one.contains(EVERY_ID)].tolist()
    assert set(contained) == members(one)
    assert one.most(END) == len(members(one))
    assert one.most(0) == 0


def test_selections_of_different_times_are_not_joined() -> None:
    with pytest.raises(ValueError, match="end at 3 and 4"):
        intersection(IdSet(3), IdSet(4))


def listed(*ids: int) -> IdSet:
    return IdSet(END, np.array(ids, dtype=np.int64))


def test_a_cache_keeps_what_was_made_of_the_present_state() -> None:
    cache = SelectionCache()
    state, kept = cache.find("a")
    assert kept is None
    cache.keep("a", state, listed(1))
    assert cache.find("a")[1] is not None
    cache.changed()
    assert cache.find("a")[1] is None
    cache.keep("a", state, listed(1))  # made before the change, finished after it
    assert cache.find("a")[1] is None


def test_a_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_cache, "IDS_KEPT", 8)
    cache = SelectionCache()
    for name in ("a", "b"):
        cache.keep(name, 0, listed(1, 2))
    cache.find("a")
    cache.keep("c", 0, listed(1, 2))
    assert [cache.find(name)[1] is not None for name in "abc"] == [True, False, True]
    cache.keep("large", 0, listed(*range(8)))
    assert cache.find("large")[1] is None
    for number in range(100):
        cache.keep(f"empty {number}", 0, listed())
    assert sum(cache.find(f"empty {number}")[1] is not None for number in range(100)) == 8


def test_a_store_remembers_a_filter_until_something_is_written(
    store: SQLiteDocumentStore, entry: Callable[..., EncodedDocument]
) -> None:
    one, true = OneOf("/a", (1,)), OneOf("/a", (True,))
    store.put([entry("x", a=1), entry("y", a=True)])
    assert store.select(one) is store.select(one)
    assert (store.select(one).ids.tolist(), store.select(true).ids.tolist()) == ([1], [2])
    former = store.select(one)
    store.put([entry("y", a=1)])
    assert store.select(one).ids.tolist() == [1, 2]
    assert former.ids.tolist() == [1]
    store.delete(["x"])
    assert store.select(one).ids.tolist() == [2]


def test_a_reader_beside_the_writer_remembers_nothing(
    open_store: Callable[..., SQLiteDocumentStore], entry: Callable[..., EncodedDocument]
) -> None:
    writer = open_store()
    reader = open_store(read_only=True)
    writer.put([entry("x", a=1)])
    assert reader.select(OneOf("/a", (1,))).ids.tolist() == [1]
    writer.put([entry("x", a=2)])
    assert reader.select(OneOf("/a", (1,))).ids.tolist() == []

"""Selections are sets of ids, whichever way round they are written."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.id_set import IdSet, complement, intersection, union
from index.store import filters
from index.store.document_store import DocumentStore
from index.store.filters import OneOf
from tests.kit.index_fixtures import MakeEntry

END = 12
EVERY_ID = np.arange(-2, END + 3)
IDS = st.sets(st.integers(0, END - 1))
SELECTIONS = st.builds(
    lambda ids, inverted: IdSet(END, np.array(sorted(ids), dtype=np.int64), inverted),
    IDS,
    st.booleans(),
)


def members(first: IdSet) -> set[int]:
    listed = set(first.ids.tolist())
    return set(range(first.end)) - listed if first.inverted else listed


@given(first=SELECTIONS, other=SELECTIONS)
def test_they_are_joined_as_sets_are(first: IdSet, other: IdSet) -> None:
    assert members(intersection(first, other)) == members(first) & members(other)
    assert members(union(first, other)) == members(first) | members(other)
    assert members(complement(first)) == set(range(END)) - members(first)
    for joined in (intersection(first, other), union(first, other)):
        assert joined.ids.tolist() == sorted(set(joined.ids.tolist()))
        assert joined.ids.dtype == np.int64


@given(first=SELECTIONS)
def test_what_they_contain(first: IdSet) -> None:
    contained = EVERY_ID[first.contains(EVERY_ID)].tolist()
    assert set(contained) == members(first)
    assert first.most(END) == len(members(first))
    assert first.most(0) == 0


def test_selections_of_different_times_are_not_joined() -> None:
    with pytest.raises(ValueError, match="end at 3 and 4"):
        intersection(IdSet(3), IdSet(4))


def test_a_selection_is_cached_until_a_write(store: DocumentStore, entry: MakeEntry) -> None:
    number, true = OneOf("/a", (1,)), OneOf("/a", (True,))
    store.put([entry("x", a=1), entry("y", a=True)])
    assert store.select(number) is store.select(number)
    assert (store.select(number).ids.tolist(), store.select(true).ids.tolist()) == ([1], [2])
    former = store.select(number)
    store.put([entry("y", a=1)])
    assert store.select(number).ids.tolist() == [1, 2]
    assert former.ids.tolist() == [1]
    store.delete(["x"])
    assert store.select(number).ids.tolist() == [2]


def test_a_selection_read_during_a_change_is_not_kept(
    store: DocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put([entry("x", a=1)])
    select = filters.select

    def select_and_change(*arguments: Any) -> IdSet:
        monkeypatch.setattr(filters, "select", select)  # once only
        found = select(*arguments)
        store.put([entry("y", a=1)])
        return found

    monkeypatch.setattr(filters, "select", select_and_change)
    assert store.select(OneOf("/a", (1,))).ids.tolist() == [1]
    assert store.select(OneOf("/a", (1,))).ids.tolist() == [1, 2]


def test_selections_make_room_for_another(
    store: DocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "IDS_KEPT", 8)  # two of two ids, which count for three
    store.put([entry(f"d{number}", a=number // 2) for number in range(6)])
    a, b, c = (OneOf("/a", (value,)) for value in range(3))
    first, second = store.select(a), store.select(b)
    assert (store.select(a), store.select(b)) == (first, second)
    assert store.select(a) is first
    third = store.select(c)
    assert store.select(c) is third
    assert store.select(b) is not second
    everything = OneOf("/a", (0, 1, 2))
    monkeypatch.setattr(filters, "IDS_KEPT", 6)
    assert store.select(everything) is not store.select(everything)  # too large to be kept

"""Pages of documents: each document once, whatever is written in between."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.errors import DamagedDocumentError
from index.store.document_store import SQLiteDocumentStore
from index.store.filters import Not, OneOf
from index.store.listing import BEFORE_ALL
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=3)


def pages(store: SQLiteDocumentStore, limit: int) -> Iterator[list[str]]:
    after = BEFORE_ALL
    while page := store.pages.listed(after, limit):
        yield [document.id for document in page]
        after = page[-1].id


@given(names=st.sets(NAMES, min_size=1, max_size=12), limit=st.integers(1, 5), data=st.data())
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_document_that_stays_is_on_one_page(
    store: SQLiteDocumentStore, entry: MakeEntry, names: set[str], limit: int, data: st.DataObject
) -> None:
    store.delete([document for page in pages(store, 1_000) for document in page])
    store.put([entry(name, f"text of {name}") for name in names])
    staying, seen = set(names), []
    for turn, page in enumerate(pages(store, limit)):
        seen += page
        assert len(page) <= limit
        name = data.draw(NAMES)
        if data.draw(st.booleans()):
            store.delete([name])
            staying.discard(name)
        else:
            store.put([entry(name, f"changed {turn}")])  # it has a new vector id then
    assert staying <= set(seen)
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen, key=str.encode)


def test_a_page_has_what_an_answer_shows(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    store.put([entry("b", "text", "Title", year=2020), entry("a", "other")])
    first, second = store.pages.listed(BEFORE_ALL, 5)
    stored = store.find(["b"])["b"]
    assert (first.id, second.id, second.title) == ("a", "b", "Title")
    assert second.metadata == {"year": 2020}
    assert (second.receipt, second.indexed_at) == (stored.receipt, stored.indexed_at)
    assert [document.id for document in store.pages.listed("a", 5)] == ["b"]
    assert [document.id for document in store.pages.listed("aa", 5)] == ["b"]
    assert store.pages.listed("b", 5) == []


def test_whole_documents_up_to_a_length(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    store.put([entry(f"d{n}", "x" * 100, f"T{n}", n=n) for n in range(10)])
    first = store.pages.whole(BEFORE_ALL, 250)
    assert [document.id for document in first] == ["d0", "d1", "d2"]
    assert first == [store.find([document.id])[document.id].document for document in first]
    assert [document.id for document in store.pages.whole("d7", 10**9)] == ["d8", "d9"]
    assert [document.id for document in store.pages.whole(BEFORE_ALL, 1)] == ["d0"]
    assert store.pages.whole("d9", 10**9) == []


def test_metadata_that_is_no_json_names_its_document(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    store.put([entry("a"), entry("b")])
    sql(store.path, "UPDATE documents SET metadata = '{' WHERE id = 'b'")
    for read in (store.pages.listed, store.pages.whole):
        with pytest.raises(DamagedDocumentError, match="document 'b' is damaged in its metadata"):
            read(BEFORE_ALL, 1_000)
        assert [document.id for document in read(BEFORE_ALL, 1)] == ["a"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("title", ["b", "c", "a", "d"]),
        ("-title", ["d", "a", "c", "b"]),
        ("date", ["a", "c", "b", "d"]),
        ("-date", ["d", "b", "c", "a"]),
    ],
)
def test_an_order_is_kept_over_pages_of_those_selected(
    store: SQLiteDocumentStore, entry: MakeEntry, order: str, expected: list[str]
) -> None:
    store.put(
        [
            entry("a", "first", "Same", kind="x"),
            entry("b", "second", "Early", kind="x", date=2020),
            entry("c", "third", "Same", kind="x", date="2019-05-01"),
            entry("d", "fourth", "Zebra", kind="x", date="2021"),
            entry("e", "fifth", "None", kind="y", date="2018"),
        ]
    )
    store.put([entry("c", "third", "Lamp", kind="x", date="2019-05-01")])
    among, seen = store.select(OneOf("/kind", ("x",))), list[str]()
    after, key = BEFORE_ALL, None
    while page := store.pages.listed(after, 1, order=order, key=key, among=among):
        seen.append(page[0].id)
        after, key = page[0].id, page[0].key
    assert seen == expected
    apart = store.select(Not(OneOf("/kind", ("x",))))
    assert [one.id for one in store.pages.listed(BEFORE_ALL, 9, among=apart)] == ["e"]


def test_facets_count_what_tells_documents_apart(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    store.put(
        [
            entry("a", "first", kind="x", tags=["s", "t"], number=1),
            entry("b", "second", kind="x", tags=["t"], number=2),
            entry("c", "third", kind="y", number=3, true=True),
        ]
    )
    found = {facet.field: dict(facet.values) for facet in store.pages.facets()}
    assert found == {"kind": {"x": 2, "y": 1}, "tags": {"t": 2, "s": 1}, "true": {True: 1}}
    among = store.select(OneOf("/kind", ("x",)))
    assert {facet.field: facet.documents for facet in store.pages.facets(among)}["tags"] == 2

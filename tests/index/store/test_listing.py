"""Pages of documents: each document once, whatever is written in between."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import DamagedDocumentError
from index.store.document_store import DocumentStore
from index.store.records import BEFORE_ALL
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=3)


def pages(store: DocumentStore, limit: int) -> Iterator[list[str]]:
    after = BEFORE_ALL
    while page := store.listed(after, limit):
        yield [document.id for document in page]
        after = page[-1].id


@given(names=st.sets(NAMES, min_size=1, max_size=12), limit=st.integers(1, 5), data=st.data())
def test_a_document_that_stays_is_on_one_page(
    store: DocumentStore, entry: MakeEntry, names: set[str], limit: int, data: st.DataObject
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


def test_a_page_has_what_an_answer_shows(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("b", "text", "Title", year=2020), entry("a", "other")])
    first, second = store.listed(BEFORE_ALL, 5)
    stored = store.find(["b"])["b"]
    assert (first.id, second.id, second.title) == ("a", "b", "Title")
    assert second.metadata == {"year": 2020}
    assert (second.receipt, second.indexed_at) == (stored.receipt, stored.indexed_at)
    assert [document.id for document in store.listed("a", 5)] == ["b"]
    assert [document.id for document in store.listed("aa", 5)] == ["b"]
    assert store.listed("b", 5) == []


def test_whole_documents_up_to_a_length(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry(f"d{n}", "x" * 100, f"T{n}", n=n) for n in range(10)])
    first = store.whole(BEFORE_ALL, 250)
    assert [document.id for document in first] == ["d0", "d1", "d2"]
    assert first == [store.find([document.id])[document.id].document for document in first]
    assert [document.id for document in store.whole("d7", 10**9)] == ["d8", "d9"]
    assert [document.id for document in store.whole(BEFORE_ALL, 1)] == ["d0"]
    assert store.whole("d9", 10**9) == []


def test_metadata_that_is_no_json_names_its_document(
    store: DocumentStore, entry: MakeEntry
) -> None:
    store.put([entry("a"), entry("b")])
    sql(store.path, "UPDATE documents SET metadata = '{' WHERE id = 'b'")
    for read in (store.listed, store.whole):
        with pytest.raises(DamagedDocumentError, match="document 'b' is damaged in its metadata"):
            read(BEFORE_ALL, 1_000)
        assert [document.id for document in read(BEFORE_ALL, 1)] == ["a"]

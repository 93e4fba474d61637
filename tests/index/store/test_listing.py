"""Pages of documents: each document once, whatever is written in between."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.document import Document
from index.store.document_store import SQLiteDocumentStore
from index.store.listing import BEFORE_ALL, DamagedDocument, Page
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=3)


def pages(store: SQLiteDocumentStore, limit: int) -> Iterator[list[str]]:
    for page in all_pages(store, limit):
        yield [document.id for document in page.documents]


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
    first, second = store.pages.listed(BEFORE_ALL, 5).documents
    stored = store.find(["b"])["b"]
    assert (first.id, second.id, second.title) == ("a", "b", "Title")
    assert second.metadata == {"year": 2020}
    assert (second.receipt, second.indexed_at) == (stored.receipt, stored.indexed_at)
    assert [document.id for document in store.pages.listed("a", 5).documents] == ["b"]
    assert [document.id for document in store.pages.listed("aa", 5).documents] == ["b"]
    assert store.pages.listed("b", 5) == Page([], [], None, full=False)


def test_whole_documents_up_to_a_length(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    store.put([entry(f"d{n}", "x" * 100, f"T{n}", n=n) for n in range(10)])
    first = store.pages.whole(BEFORE_ALL, 250)
    assert [document.id for document in first] == ["d0", "d1", "d2"]
    assert first == [store.find([document.id])[document.id].document for document in first]
    assert [document.id for document in store.pages.whole("d7", 10**9)] == ["d8", "d9"]
    assert [document.id for document in store.pages.whole(BEFORE_ALL, 1)] == ["d0"]
    assert store.pages.whole("d9", 10**9) == []


DAMAGES = {
    "metadata": "metadata = '{'",
    "metadata that is JSON": "metadata = '[1]'",
    "a title": "title = CAST(x'41ff' AS TEXT)",
    "an id": "id = CAST(x'62ff' AS TEXT)",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_damaged_document_is_named_and_passed(
    store: SQLiteDocumentStore,
    entry: MakeEntry,
    damage: str,
    limit: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.put([entry("a"), entry("b", title="Bees"), entry("c")])
    change(store, DAMAGES[damage])
    name = "b\ufffd" if damage == "an id" else "b"
    assert [document for page in pages(store, limit) for document in page] == ["a", "c"]
    assert [name for page in all_pages(store, limit) for name in page.damaged] == [name]
    documents = whole(store, 1)
    assert [isinstance(document, DamagedDocument) for document in documents] == [False, True, False]
    assert documents[1].id == name
    assert len(store.damage) == 1
    assert f"document {name!r} is damaged" in caplog.text
    store.delete(["a", "c"])
    assert len(store.damage) == 1


def test_a_damaged_text_is_named_and_its_words_are_nowhere(
    store: SQLiteDocumentStore, entry: MakeEntry, caplog: pytest.LogCaptureFixture
) -> None:
    store.put([entry("a"), entry("b", "secret words"), entry("c")])
    change(store, "text = CAST(x'73656372657420ff' AS TEXT)")
    assert [document.id for document in store.pages.listed(BEFORE_ALL, 5).documents] == [
        "a",
        "b",
        "c",
    ]
    assert [isinstance(document, DamagedDocument) for document in whole(store, 10**6)] == [
        False,
        True,
        False,
    ]
    assert "secret" not in caplog.text
    store.put([entry("b", "secret words")])
    assert len(store.damage) == 0
    assert [document.id for document in whole(store, 10**6)] == ["a", "b", "c"]
    assert store.find(["b"])["b"].document.text == "secret words"


def change(store: SQLiteDocumentStore, assignment: str) -> None:
    sql(store.path, f"UPDATE documents SET {assignment} WHERE id = 'b'")


def all_pages(store: SQLiteDocumentStore, limit: int) -> Iterator[Page]:
    after = BEFORE_ALL
    while (page := store.pages.listed(after, limit)).last is not None:
        yield page
        after = page.last


def whole(store: SQLiteDocumentStore, characters: int) -> list[Document | DamagedDocument]:
    found: list[Document | DamagedDocument] = []
    after = BEFORE_ALL
    while some := store.pages.whole(after, characters):
        found += some
        last = some[-1]
        after = last.place if isinstance(last, DamagedDocument) else last.id
    return found

"""What every document store does."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import index.store.rows
import index.store.schema
from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.document import Document
from index.errors import StoreError
from index.lexical.stored_texts import StoredTexts
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.filters import Not, OneOf
from index.store.records import BEFORE_ALL, DocumentSummary, EncodedDocument
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry, OpenStore


def test_a_new_store_is_empty(store: DocumentStore) -> None:
    assert (len(store), store.sequence, store.log.start) == (0, 0, 0)
    assert (store.fingerprint, store.dimension) == (FINGERPRINT, DIMENSION)
    assert store.log.since(0) == Changes(0, [], [], [])
    assert [found.shape for found in store.vectors([1])] == [(0,), (0, DIMENSION)]


def test_a_closed_store_raises(store: DocumentStore, entry: MakeEntry) -> None:
    store.put([entry("a")])
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        *(lambda: store.put([entry("b")]), lambda: store.delete(["a"]), lambda: store.get([1])),
        *(lambda: store.find(["a"]), lambda: store.content_hashes(["a"])),
        *(lambda: store.vectors([1]), lambda: store.block_vectors([1]), lambda: store.select(None)),
        *(lambda: store.log.since(0), lambda: store.read_changes(0, 1)),
        *(lambda: store.log.start, lambda: store.log.count_since(0, 0)),
        *(lambda: store.log.forget(1), lambda: store.sequence, lambda: len(store)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            call()


def test_a_document_comes_back_as_it_was_put(store: DocumentStore, entry: MakeEntry) -> None:
    document = Document(
        "arXiv:2004.12297/vß",
        "Erste Zeile.\r\nnul \x00 inside, 文書, 😀\ufffd " * 2_000,
        "Ein 'Titel' \"mit\" %_?",
        {"year": 2020, "nested": {"list": [1, 2.5, None, True, "ü"]}},
    )
    receipt = Receipt(
        tokens=9_000, tokens_read=4_096, blocks=32, blocks_left_out=39, tokens_encoded=4_096
    )
    (vector_id,) = store.put([EncodedDocument(document, entry("x").vector, receipt)]).changed
    stored = store.find([document.id])[document.id]
    assert store.get([vector_id]) == {
        vector_id: DocumentSummary(document.id, document.title, document.metadata)
    }
    assert stored.vector_id == vector_id
    assert stored.document == document
    assert stored.receipt == receipt
    assert stored.indexed_at.endswith("+00:00")
    assert store.content_hashes([document.id]) == {document.id: document.content_hash}


def test_the_same_text_keeps_its_vector_id(store: DocumentStore, entry: MakeEntry) -> None:
    first = store.put([entry("a", "same text", "old title", year=1)])
    other_vector = entry("a", "different").vector
    renamed = Document("a", "same text", "new title", {"year": 2})
    entries = [EncodedDocument(renamed, other_vector, Receipt(5, 5, 1, 0, 5))]
    second = store.put(entries)
    assert second == Changes(first.sequence + 1, first.changed, [])
    assert store.put(entries).sequence == second.sequence  # nothing has changed
    stored = store.find(["a"])["a"]
    assert (stored.document, stored.vector_id) == (renamed, first.changed[0])
    texts = StoredTexts(store.connections, store.common_text, ask=store.connections.shared)
    named = texts.count_text(("A new title, an old title", ""))
    assert {term for term in named if term[0] == '"'} == {'"new title"'}
    np.testing.assert_array_equal(
        store.vectors(first.changed)[1][0], entry("a", "same text").vector
    )


def test_a_vector_id_is_never_assigned_twice(open_store: OpenStore, entry: MakeEntry) -> None:
    store = open_store()
    assigned = [int(store.put([entry("a", "one")]).changed[0])]
    store.delete(["a"])
    store.close()
    store = open_store()
    assigned.append(int(store.put([entry("a", "one")]).changed[0]))
    assert len(set(assigned)) == 2


@pytest.mark.parametrize("asked", ["a\x00b", "a\ud800", "", "a' OR '1'='1"])
def test_an_impossible_id_finds_nothing(store: DocumentStore, entry: MakeEntry, asked: str) -> None:
    store.put([entry("a")])
    assert store.find([asked]) == {}
    assert store.content_hashes([asked]) == {}
    assert store.delete([asked]).removed == []
    assert len(store) == 1


def test_more_ids_than_variables_of_a_statement(store: DocumentStore, entry: MakeEntry) -> None:
    change = store.put([entry(f"document {number}", f"{number}") for number in (1, 39_999)])
    ids = [f"document {number}" for number in range(40_000)]
    vector_ids = [*range(100, 40_100), *change.changed]
    assert store.get(vector_ids).keys() == set(change.changed)
    assert store.find(ids).keys() == store.content_hashes(ids).keys() == {ids[1], ids[39_999]}
    assert store.vectors(vector_ids)[0].tolist() == change.changed
    assert store.delete([*ids, *ids]).removed == change.changed


Operation = tuple[str, list[tuple[str, str]]]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete"]),
        st.lists(
            st.tuples(st.sampled_from("abcde"), st.sampled_from(["one", "two", "three"])),
            max_size=4,
            unique_by=lambda pair: pair[0],
        ),
    ),
    max_size=12,
)


@given(operations=OPERATIONS)
def test_the_log_leads_from_any_age_to_the_present(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path, operations: list[Operation]
) -> None:
    store = open_store(tmp_path / uuid4().hex)
    texts: dict[str, str] = {}
    living: dict[int, set[int]] = {0: set()}  # sequence -> vector ids
    for kind, pairs in operations:
        before = store.sequence
        if kind == "put":
            change = store.put([entry(document_id, text) for document_id, text in pairs])
            texts |= dict(pairs)
        else:
            change = store.delete([document_id for document_id, _ in pairs])
            texts = {name: text for name, text in texts.items() if name not in dict(pairs)}
        assert change.sequence == before + bool(change.changed or change.removed)
        now = (living[before] - set(change.removed)) | set(change.changed)
        living[change.sequence] = now
    assert {key: stored.document.text for key, stored in store.find("abcde").items()} == texts
    assert {stored.vector_id for stored in store.find("abcde").values()} == now_of(living)
    for sequence, then in living.items():
        changes = store.log.since(sequence)
        assert changes is not None
        assert changes.sequence == store.sequence
        assert changes.changed == sorted(now_of(living) - then)
        assert then - now_of(living) == then & set(changes.removed)
        assert not now_of(living) & set(changes.removed)
    store.close()  # there are a hundred examples, and PostgreSQL has a hundred connections


def now_of(living: dict[int, set[int]]) -> set[int]:
    return living[max(living)]


def test_an_id_twice_in_one_call_is_refused(store: DocumentStore, entry: MakeEntry) -> None:
    with pytest.raises(ValueError, match="document 'twice' is there twice"):
        store.put([entry("twice", "one"), entry("b"), entry("twice", "two")])
    assert (len(store), store.sequence) == (0, 0)


@pytest.mark.parametrize(
    ("vector", "complaint"),
    [
        (np.full(15, 15**-0.5), r"shape \(15,\), not \(16,\)"),
        (np.full((1, 16), 0.25), r"shape \(1, 16\)"),
        (np.zeros(16), "no unit norm"),
        (np.full(16, 0.25 * 1.002), "no unit norm"),
        (np.array([np.nan, *[0.25] * 15]), "no unit norm"),
        (np.array([np.inf, *[0.25] * 15]), "no unit norm"),
    ],
)
def test_a_bad_vector_is_refused_by_name(
    store: DocumentStore, entry: MakeEntry, vector: Float32, complaint: str
) -> None:
    bad = EncodedDocument(
        Document("bad one", "text"), vector.astype(np.float32), Receipt(1, 1, 1, 0, 1)
    )
    with pytest.raises(ValueError, match=f"document 'bad one': its vector has {complaint}"):
        store.put([entry("good"), bad])
    assert len(store) == 0


def test_changes_come_with_their_last_vectors(store: DocumentStore, entry: MakeEntry) -> None:
    entries = [entry(f"d{n}", f"text {n}") for n in range(5)]
    added = store.put(entries).changed
    for last in (2, 5, 9):
        found = store.read_changes(0, last)
        assert found is not None
        changes, ids, vectors = found
        assert changes == store.log.since(0)
        assert changes.changed == added
        kept = min(last, 5)
        assert ids.tolist() == added[5 - kept :]
        expected = [entry.vector for entry in entries[5 - kept :]]
        np.testing.assert_array_equal(vectors, np.array(expected).reshape(kept, DIMENSION))


def test_forgotten_changes_are_known_to_be(store: DocumentStore, entry: MakeEntry) -> None:
    for version in range(4):
        store.put([entry("a", f"version {version}"), entry("b", "stays")])
    assert store.log.count_since(1, 2) == (1, 1)  # a is another vector now
    assert store.log.length_since(1) == 4
    assert store.log.forget(3) == 2
    assert store.log.start == 3
    assert store.log.count_since(1, 2) == (1, 1)
    for sequence in (2, -1, store.sequence + 1):  # the others never were
        assert store.log.since(sequence) is store.read_changes(sequence, 1) is None
    changes = store.log.since(3)
    assert changes is not None
    assert len(changes.removed) == 1
    assert store.log.added_after(0)[1].size == 2
    assert store.log.forget(2) == 0
    assert store.log.start == 3


def test_additions_are_listed_in_parts(store: DocumentStore, entry: MakeEntry) -> None:
    assert store.log.added_after(0, 10)[1].tolist() == []
    assert store.log.last_vector_id == 0
    store.put([entry("a", "one"), entry("b", "stays")])
    store.put([entry("a", "another"), entry("c", "new")])
    store.delete(["c"])
    store.log.forget(3)
    sequence, first = store.log.added_after(0, 1)
    assert sequence == store.sequence
    _, rest = store.log.added_after(int(first[0]), 10)
    found = store.get([*first.tolist(), *rest.tolist()])
    assert [document.id for document in found.values()] == ["b", "a"]
    assert store.log.last_vector_id == max(found) + 1  # that of c, which is gone


def test_no_statement_reads_a_whole_table() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(index.store.schema.STORE.script)
    statements = [
        value
        for value in vars(index.store.rows).values()
        if isinstance(value, str)
        and "{" not in value
        and " FROM " in value.replace("\n", " ")
        and "?" in value
    ]
    assert len(statements) >= 8
    for statement in statements:
        marks = connection.execute(
            "EXPLAIN QUERY PLAN " + statement,
            ["[]"] * (1 if "?1" in statement else statement.count("?")),
        )
        scans = [row[3] for row in marks if row[3].startswith("SCAN")]
        assert all("json_each" in scan for scan in scans), statement
    connection.close()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("title", ["b", "c", "a", "d"]),
        ("-date", ["d", "b", "c", "a"]),
    ],
)
def test_an_order_is_kept_over_pages_of_those_selected(
    store: DocumentStore, entry: MakeEntry, order: str, expected: list[str]
) -> None:
    store.put(
        [
            entry("a", "first", "Same", kind="x"),
            entry("b", "second", "Early", kind="x", date=2020),
            entry("c", "third", "Same", kind="x", date="2019-05-01"),
            entry("d", "fourth", "Zebra", kind="x", date="2021"),
            entry("e", "fifth", "None", kind="y", date="20\x0018"),
        ]
    )
    store.put([entry("c", "third", "Lamp", kind="x", date="2019-05-01")])
    among, seen = store.select(OneOf("/kind", ("x",))), list[str]()
    after, key = BEFORE_ALL, None
    while page := store.listed(after, 1, order=order, key=key, among=among):
        seen.append(page[0].id)
        after, key = page[0].id, page[0].key
    assert seen == expected
    apart = store.select(Not(OneOf("/kind", ("x",))))
    assert [one.id for one in store.listed(BEFORE_ALL, 9, among=apart)] == ["e"]


def test_facets_count_what_tells_documents_apart(store: DocumentStore, entry: MakeEntry) -> None:
    store.put(
        [
            entry("a", "first", kind="x", tags=["s", "t"], number=1),
            entry("b", "second", kind="x", tags=["t"], number=2),
            entry("c", "third", kind="y", number=3, true=True),
        ]
    )
    found = {facet.field: dict(facet.values) for facet in store.facets()}
    assert found == {"kind": {"x": 2, "y": 1}, "tags": {"t": 2, "s": 1}, "true": {True: 1}}
    among = store.select(OneOf("/kind", ("x",)))
    assert {facet.field: facet.documents for facet in store.facets(among)}["tags"] == 2

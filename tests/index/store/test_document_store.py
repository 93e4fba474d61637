import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import index.store.schema
import index.store.statements
from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.document import Document
from index.store.document_store import SQLiteDocumentStore
from index.store.records import DocumentSummary, EncodedDocument

MakeEntry = Callable[..., EncodedDocument]
OpenStore = Callable[..., SQLiteDocumentStore]


def test_a_document_comes_back_as_it_was_put(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    document = Document(
        "arXiv:2004.12297/vß",
        "Erste Zeile.\r\nnul \x00 inside, 文書, 😀\ufffd " * 2_000,
        "Ein 'Titel' \"mit\" %_?",
        {"year": 2020, "nested": {"list": [1, 2.5, None, True, "ü"]}},
    )
    receipt = Receipt(tokens=9_000, tokens_read=4_096, blocks=32, blocks_left_out=39)
    change = store.put([EncodedDocument(document, entry("x").vector, receipt)])
    (vector_id,) = change.added.tolist()

    stored = store.find([document.id])[document.id]

    assert store.get([vector_id]) == {
        vector_id: DocumentSummary(document.id, document.title, document.metadata)
    }
    assert stored.vector_id == vector_id
    assert stored.document == document
    assert stored.receipt == receipt
    assert stored.indexed_at.endswith("+00:00")
    assert store.content_hashes([document.id]) == {document.id: document.content_hash}


def test_what_is_stored_survives_closing(open_store: OpenStore, entry: MakeEntry) -> None:
    first = open_store()
    put = [entry("a", "one"), entry("b", "two")]
    change = first.put(put)
    first.close()

    again = open_store()

    ids, vectors = again.vectors(change.added)
    assert ids.tolist() == change.added.tolist()
    np.testing.assert_array_equal(vectors, np.stack([one.vector for one in put]))
    assert vectors.dtype == np.float32
    assert (len(again), again.sequence) == (2, 1)


def test_the_same_text_keeps_its_vector_and_takes_the_new_description(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    first = store.put([entry("a", "same text", "old title", year=1)])
    other_vector = entry("a", "different").vector
    renamed = Document("a", "same text", "new title", {"year": 2})

    second = store.put([EncodedDocument(renamed, other_vector, Receipt(5, 5, 1, 0))])

    assert (second.sequence, second.added.size, second.removed.size) == (first.sequence, 0, 0)
    assert store.find(["a"])["a"].document == renamed
    assert store.find(["a"])["a"].vector_id == first.added[0]
    np.testing.assert_array_equal(store.vectors(first.added)[1][0], entry("a", "same text").vector)


def test_a_new_text_gets_a_new_vector_id_and_removes_the_old_one(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    first = store.put([entry("a", "old"), entry("b", "stays")])

    second = store.put([entry("a", "new"), entry("b", "stays")])

    assert second.removed.tolist() == [first.added[0]]
    assert second.added[0] > first.added.max()
    assert second.sequence == first.sequence + 1
    assert store.get(first.added.tolist()).keys() == {first.added[1]}
    assert len(store) == 2


def test_a_vector_id_is_never_given_out_twice(open_store: OpenStore, entry: MakeEntry) -> None:
    store = open_store()
    given_out = [int(store.put([entry("a", "one")]).added[0])]
    store.delete(["a"])
    store.close()
    store = open_store()
    given_out.append(int(store.put([entry("a", "one")]).added[0]))
    assert len(set(given_out)) == 2


def test_deleting_ignores_unknown_ids(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    put = store.put([entry("a"), entry("b", "other")])

    nothing = store.delete(["unknown"])
    change = store.delete(["a", "a", "unknown"])

    assert (nothing.sequence, nothing.removed.size) == (put.sequence, 0)
    assert change.removed.tolist() == [put.added[0]]
    assert change.added.size == 0
    assert store.find(["a", "b"]).keys() == {"b"}
    assert store.vectors(put.added)[0].tolist() == [put.added[1]]


@pytest.mark.parametrize("asked", ["a\x00b", "a\ud800", "", "a' OR '1'='1"])
def test_an_impossible_id_is_not_taken_for_another(
    store: SQLiteDocumentStore, entry: MakeEntry, asked: str
) -> None:
    store.put([entry("a")])
    assert store.find([asked]) == {}
    assert store.content_hashes([asked]) == {}
    assert store.delete([asked]).removed.size == 0
    assert len(store) == 1


def test_more_ids_than_a_statement_has_variables(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    change = store.put([entry(f"document {number}", f"{number}") for number in (1, 39_999)])
    ids = [f"document {number}" for number in range(40_000)]
    vector_ids = [*range(100, 40_100), *change.added.tolist()]

    assert store.get(vector_ids).keys() == set(change.added.tolist())
    assert store.find(ids).keys() == store.content_hashes(ids).keys() == {ids[1], ids[39_999]}
    assert store.vectors(vector_ids)[0].tolist() == change.added.tolist()
    assert store.delete(ids).removed.tolist() == change.added.tolist()


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
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changes_since_leads_from_any_age_to_the_present(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path, operations: list[Operation]
) -> None:
    path = tmp_path / "replayed.sqlite3"
    path.unlink(missing_ok=True)
    store = open_store(path)
    texts: dict[str, str] = {}
    living: dict[int, set[int]] = {0: set()}  # sequence -> vector ids
    for kind, pairs in operations:
        before = store.sequence
        if kind == "put":
            change = store.put([entry(document_id, text) for document_id, text in pairs])
            texts |= dict(pairs)
        else:
            change = store.delete([document_id for document_id, _ in pairs])
            texts = {one: text for one, text in texts.items() if one not in dict(pairs)}
        assert change.sequence == before + bool(change.added.size or change.removed.size)
        now = (living[before] - set(change.removed.tolist())) | set(change.added.tolist())
        living[change.sequence] = now

    assert {key: one.document.text for key, one in store.find("abcde").items()} == texts
    assert {one.vector_id for one in store.find("abcde").values()} == now_of(living)
    for sequence, then in living.items():
        change = store.changes_since(sequence)
        assert change.sequence == store.sequence
        assert change.added.tolist() == sorted(now_of(living) - then)
        assert change.removed.tolist() == sorted(then - now_of(living))
    store.close()


def now_of(living: dict[int, set[int]]) -> set[int]:
    return living[max(living)]


@pytest.mark.parametrize("sequence", [-1, 2])
def test_a_sequence_the_store_never_had_is_refused(
    store: SQLiteDocumentStore, entry: MakeEntry, sequence: int
) -> None:
    store.put([entry("a")])
    with pytest.raises(ValueError, match=f"{sequence} is not between 0 and the store's 1"):
        store.changes_since(sequence)


def test_an_id_twice_in_one_call_is_refused(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
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
    store: SQLiteDocumentStore, entry: MakeEntry, vector: Float32, complaint: str
) -> None:
    bad = EncodedDocument(
        Document("bad one", "text"), vector.astype(np.float32), Receipt(1, 1, 1, 0)
    )
    with pytest.raises(ValueError, match=f"document 'bad one': its vector has {complaint}"):
        store.put([entry("good"), bad])
    assert len(store) == 0


def test_no_statement_reads_a_whole_table() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(index.store.schema.SCHEMA)
    statements = [
        value
        for value in vars(index.store.statements).values()
        if isinstance(value, str) and " FROM " in value.replace("\n", " ") and "?" in value
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

"""What every index of words does, shown against sums over all terms of the same texts."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from index.id_set import IdSet
from index.lexical.terms import count_terms
from index.progress import SilentProgress
from index.store.document_store import SQLiteDocumentStore
from tests.tools.index_fixtures import MakeEntry

WORDS = [f"word{number}" for number in range(60)]

Open = Callable[[], SQLiteDocumentStore]


@pytest.fixture
def open_one(tmp_path: Path) -> Iterator[Open]:
    """Open a store, the same one each time."""
    with ExitStack() as opened:

        def make() -> SQLiteDocumentStore:
            path = tmp_path / "store.sqlite3"
            about = {"fingerprint": "a" * 64, "dimension": 16, "find_families": False}
            return opened.enter_context(closing(SQLiteDocumentStore(path, **about)))

        yield make


@pytest.fixture
def store(open_one: Open) -> SQLiteDocumentStore:
    return open_one()


def text_of(number: int) -> str:
    """A text of words that are the rarer the later they stand among all."""
    chance = np.random.default_rng(number)
    places = (len(WORDS) * chance.random(30) ** 2).astype(int)
    return " ".join(WORDS[place] for place in places)


def cosine(query: Mapping[str, int], text: str, texts: Mapping[str, str], least: int) -> float:
    """Return the score of a text of a collection for a query of these counts."""
    counted = {name: count_terms(one) for name, one in texts.items()}
    having = Counter(term for counts in counted.values() for term in counts)
    idf = {term: float(np.log(len(texts) / n)) for term, n in having.items()}
    asked = {t: n**0.5 * idf[t] for t, n in query.items() if having[t] >= least}
    own = count_terms(text)
    compared = [t for t in own if having[t] >= 2 or t in asked]  # others weigh nothing
    dot = sum(asked.get(t, 0.0) * own[t] ** 0.5 * idf[t] for t in own)
    norms = sum(w**2 for w in asked.values()) * sum(own[t] * idf[t] ** 2 for t in compared)
    return float(dot / max(norms, 1e-12) ** 0.5)


def put(store: SQLiteDocumentStore, entry: MakeEntry, texts: Mapping[str, str]) -> None:
    store.put([entry(name, text) for name, text in texts.items()])


def names_of(store: SQLiteDocumentStore) -> dict[int, str]:
    ids = store.changes_since(0).added.tolist()
    return {vector_id: one.id for vector_id, one in store.get(ids).items()}


def found_by(
    store: SQLiteDocumentStore, text: str, k: int = 100, among: IdSet | None = None
) -> dict[str, float]:
    query = store.lexical.read(text)
    found = store.lexical.search(query, k, among=among)
    names = names_of(store)
    return {
        names[one]: score
        for one, score in zip(found.vector_ids.tolist(), found.scores.tolist(), strict=True)
    }


def test_scores_are_cosines_after_any_changes(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    texts: dict[str, str] = {}
    for step in range(4):
        new = {f"d{(17 * step + n) % 40}": text_of(100 * step + n) for n in range(20)}
        put(store, entry, new)
        texts |= new
        gone = [f"d{n}" for n in range(step, 40, 9)]
        store.delete(gone)
        texts = {name: text for name, text in texts.items() if name not in gone}
        asked = text_of(9_000 + step) + " nowhere else"
        expected = {n: cosine(count_terms(asked), t, texts, 1) for n, t in texts.items()}
        found = found_by(store, asked)
        assert found == pytest.approx({n: s for n, s in expected.items() if s > 0}, abs=1e-5)
        assert list(found.values()) == sorted(found.values(), reverse=True)
        for vector_id, name in list(names_of(store).items())[:3]:
            query = store.lexical.read_stored(vector_id)
            ids = np.array(list(names_of(store)))
            scores = store.lexical.score(query, ids).tolist()
            own = count_terms(texts[name])
            assert scores == pytest.approx(
                [cosine(own, texts[one], texts, 2) for one in names_of(store).values()], abs=1e-5
            )


@pytest.mark.parametrize("inverted", [False, True])
def test_a_selection_restricts_the_search(
    store: SQLiteDocumentStore, entry: MakeEntry, inverted: bool
) -> None:
    put(store, entry, {f"d{n}": text_of(n) for n in range(30)})
    listed = np.arange(3, 28, 4)
    among = IdSet(25, listed[listed < 25], inverted)
    query = store.lexical.read(text_of(77))
    everything = store.lexical.search(query, 100)
    kept = among.contains(everything.vector_ids)
    for found in (
        store.lexical.search(query, 100, among=among),
        store.lexical.search_all(query, 100, among),
    ):
        assert found.vector_ids.tolist() == everything.vector_ids[kept].tolist()
        assert found.scores.tolist() == pytest.approx(everything.scores[kept].tolist(), abs=1e-6)
    assert set(store.lexical.candidates(query, 5, among)) == set(everything.vector_ids[kept])


def test_queries_without_known_words_find_nothing(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    assert found_by(store, "anything at all") == {}  # in an empty store
    put(store, entry, {f"d{n}": text_of(n) for n in range(5)})
    for text in ("", "…", "unheard unseen"):
        query = store.lexical.read(text)
        assert len(query) == 0
        assert store.lexical.search(query, 5).vector_ids.tolist() == []
        assert store.lexical.candidates(query, 5).tolist() == []
        assert store.lexical.search_all(query, 5, IdSet(10, inverted=True)).scores.tolist() == []
        assert store.lexical.score(query, np.array([1, 999])).tolist() == [0, 0]
    assert len(store.lexical.read_stored(999)) == 0


def test_the_telling_words_and_titles_are_named(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    store.put(
        [
            entry("heron", "a grey heron waits in a marsh", "The heron"),
            entry("egret", "an egret waits in a field"),
            entry("court", "a court hears an appeal of a court"),
            entry("other", "nothing of that sort"),
        ]
    )
    query = store.lexical.read("a heron in the marsh", title="The heron")
    found = store.lexical.search(query, 1)
    (terms,) = store.lexical.explain(query, found.vector_ids.tolist()).values()
    assert terms[0].term == '"the heron"'
    assert sum(one.weight for one in terms) == pytest.approx(1.0)
    store.put([entry("heron", "a grey heron waits in a marsh", "Another name")])
    assert len(store.lexical.read("", title="The heron")) == 0
    assert found_by(store, "another name")["heron"] > 0


def test_a_document_of_many_words_is_compared_by_all(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    words = [f"w{number:05d}" for number in range(50_000)]
    between = " the "  # so that the words make no pairs
    texts = {"long": between.join(words), "part": between.join(words[::100]), "none": "other"}
    put(store, entry, texts)
    found = found_by(store, texts["part"])
    expected = cosine(count_terms(texts["part"]), texts["long"], texts, 1)
    assert found == pytest.approx({"part": 1.0, "long": expected}, abs=1e-4)


def test_opening_finds_what_was_written_before_and_beside(
    open_one: Open,
    entry: MakeEntry,
) -> None:
    first = open_one()
    put(first, entry, {f"d{n}": text_of(n) for n in range(12)})
    expected = found_by(first, text_of(3))
    first.close()
    again = open_one()
    assert found_by(again, text_of(3)) == expected
    again.close()
    beside = open_one()  # nothing tells the other index
    beside.delete(["d1", "d2"])
    put(beside, entry, {"d3": text_of(50), "d20": text_of(20)})
    beside.lexical.publish()  # forgets what was removed
    expected = found_by(beside, text_of(20))
    beside.close()
    last = open_one()
    assert found_by(last, text_of(20)) == pytest.approx(expected, abs=1e-6)
    assert "d1" not in expected
    assert expected["d20"] > 0.99


def test_what_is_acknowledged_is_found_beside_other_writes(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    put(store, entry, {f"d{n}": text_of(n) for n in range(5)})
    failures: list[str] = []

    def write(own: int) -> None:
        for step in range(4):
            word = f"unique{own}x{step}"
            store.put([entry(f"t{own}", f"{word} {text_of(step)}")])
            if f"t{own}" not in found_by(store, word):
                failures.append(f"{word} is missing")
            store.delete([f"t{own}"])
            if len(store.lexical.search(store.lexical.read(word), 5).vector_ids):
                failures.append(f"{word} is left")

    threads = [threading.Thread(target=write, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_documents_as_rows_give_the_same_scores(
    store: SQLiteDocumentStore, entry: MakeEntry
) -> None:
    put(store, entry, {f"d{n}": text_of(n) for n in range(6)})
    store.lexical.publish()
    ids = np.array(sorted(names_of(store)))
    rows = store.lexical.term_rows(np.append(ids, 999), SilentProgress())
    dense = np.zeros((len(rows), int(rows.term_ids.max()) + 1))
    for row, (start, end) in enumerate(zip([0, *rows.ends[:-1]], rows.ends, strict=True)):
        dense[row, rows.term_ids[start:end]] = rows.weights[start:end]
    scores = [store.lexical.score(store.lexical.read_stored(one), ids) for one in ids.tolist()]
    np.testing.assert_allclose((dense @ dense.T)[:-1, :-1], np.stack(scores), atol=1e-5)
    assert not dense[-1].any()


def test_the_words_can_be_made_in_the_background(open_one: Open, entry: MakeEntry) -> None:
    first = open_one()
    put(first, entry, {f"d{n}": text_of(n) for n in range(5)})
    first.close()
    again = open_one()
    again.lexical.make_in_background()
    again.lexical.wait(120)
    assert not again.lexical.building
    assert len(found_by(again, text_of(2))) == 5

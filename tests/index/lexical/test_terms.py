"""Titles as terms: which are found in a text, and that a pass finds those of later documents."""

import sqlite3
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.terms.segmentation import word_spans, words_of
from evaluation.systems import lexical_system
from index.lexical.hashed_words import _ids_of, find_names
from index.lexical.scoring import (
    inverse_document_frequencies,
    join_rows,
    rows_of_texts,
    term_cosines,
    weigh_rows,
)
from index.lexical.stored_texts import StoredTexts, TitlesInStore
from index.lexical.terms import (
    MAX_TITLE_WORDS,
    NAMED_TITLE_COUNT,
    OWN_TITLE_COUNT,
    count_terms_and_titles,
    known_titles,
    level_of,
    title_hashes,
)
from index.progress import SilentProgress
from index.store.document_store import DocumentStore
from tests.kit.index_fixtures import MakeEntry

WORDS = ["world", "war", "ii", "a", "b"]
TEXTS = {
    "war": ("World War II", "It was fought by many."),
    "names it": ("A battle", "The battle was part of World War II and ended it."),
    "names it, too": ("A treaty", "Signed after the world-war ii, by some."),
    "does not": ("A river", "The war of the world, part ii: water."),
}


def titles_in(counted: Counter[str]) -> dict[str, int]:
    return {term: n for term, n in counted.items() if term.startswith('"')}


def test_titles_are_found_as_runs_of_words() -> None:
    titles = known_titles(["World War II", "Ants", "São Paulo", "", "?!"])
    text = "After WORLD  war, ii… the ants of Sao Paulo, and ants. World war."
    assert titles_in(count_terms_and_titles(text, titles)) == {
        '"world war ii"': NAMED_TITLE_COUNT,
        '"ants"': NAMED_TITLE_COUNT,
        '"sao paulo"': NAMED_TITLE_COUNT,
    }
    assert count_terms_and_titles(text, titles)["ants"] == 2
    assert titles_in(count_terms_and_titles("Paulo São", titles)) == {}
    assert titles_in(count_terms_and_titles("", titles)) == {}


@given(st.one_of(st.text(), st.text(st.sampled_from("aÉe\u0301ΣσςİıßﬁŒ½①ᴬ한 _-’\u0130\u0345"))))
def test_words_with_places_are_the_words(text: str) -> None:
    spans = word_spans(text)
    assert [word for word, _, _ in spans] == words_of(text)
    for word, begin, end in spans:
        assert 0 <= begin < end <= len(text)
        assert word in "".join(words_of(text[begin:end])) or "Σ" in text[begin:end]
    begins = [begin for _, begin, _ in spans]
    assert begins == sorted(begins)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("World War, II", ["World", "War", "II"]),
        ("Sa\u0303o Paulo\u0301!", ["Sa\u0303o", "Paulo\u0301"]),
        ("İzmir ΟΔΟΣ", ["İzmir", "ΟΔΟΣ"]),
        ("ﬁn a_b", ["ﬁn", "a", "b"]),
        ("½", ["½", "½"]),  # two words of one character
        (f"a {'b' * 65} c", ["a", "c"]),
    ],
)
def test_places_are_those_of_the_text_as_written(text: str, words: list[str]) -> None:
    assert [text[begin:end] for _, begin, end in word_spans(text)] == words


def test_the_title_of_the_text_counts_unless_it_is_too_long() -> None:
    for text, title in (("ants and bees", "Ants!"), ("bees", "ANTS")):
        counted = count_terms_and_titles(text, known_titles(["Ants"]), title)
        assert titles_in(counted) == {'"ants"': OWN_TITLE_COUNT}
    long = " ".join(["word"] * (MAX_TITLE_WORDS + 1))
    assert titles_in(count_terms_and_titles(long, known_titles([long]), long)) == {}


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), max_size=5),
    st.lists(st.sampled_from(WORDS), max_size=30),
)
def test_titles_found_equal_a_search_for_each(titles: list[list[str]], text: list[str]) -> None:
    names = [" ".join(title) for title in titles]
    expected = {
        f'"{" ".join(title)}"': NAMED_TITLE_COUNT
        for title in titles
        if any(text[n : n + len(title)] == title for n in range(len(text)))
    }
    store = sqlite3.connect(":memory:")
    store.execute("CREATE TABLE documents (title_hash, title_head)")
    store.executemany("INSERT INTO documents VALUES (?, ?)", map(title_hashes, names))
    for known in (known_titles(names), TitlesInStore(store)):
        counted = count_terms_and_titles(" ".join(text), known)
        assert titles_in(counted) == expected
        ids = _ids_of(list(counted)).tolist()
        assert find_names(ids, " ".join(text), "") == dict(zip(ids, counted, strict=True))


@given(st.lists(st.sampled_from(WORDS), max_size=4), st.lists(st.sampled_from(WORDS), max_size=4))
def test_titles_are_joined_as_if_all_were_known_at_once(some: list[str], more: list[str]) -> None:
    some, more = [*some, "two words"], [" ".join(more), *more, "?!"]
    joined, together = known_titles(some).joined(known_titles(more)), known_titles([*some, *more])
    for name in ("hashes", "lengths"):
        assert getattr(joined, name).tolist() == getattr(together, name).tolist()


def test_new_titles_are_known_without_reading_all_again(
    store: DocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put([entry("first", "nothing", "Ants")])
    store.put([entry(f"d{n}", f"text {n}", f"Title {n}") for n in range(5)])
    monkeypatch.setattr("index.lexical.stored_texts.MAX_TITLE_DRIFT", 0.2)
    reads = []
    forget = StoredTexts.forget
    monkeypatch.setattr(StoredTexts, "forget", lambda texts: (reads.append(1), forget(texts)))
    store.put([entry("bees", "more", "Bees")])
    store.put([entry("names", "bees and title 3")])
    assert reads == []
    named = store.lexical.read("unheard", title="Bees")
    assert len(store.lexical.search(named, 10).vector_ids) == 2
    store.delete(["first", "d0"])
    store.put([entry("last", "ants")])
    assert reads == [1]  # those of deleted documents are known until then


def put_all(store: DocumentStore, entry: MakeEntry) -> None:
    for name, (title, text) in reversed(TEXTS.items()):
        store.put([entry(name, text, title)])


class CountingProgress(SilentProgress):
    """Counts the documents of a pass."""

    def __init__(self) -> None:
        self.documents = 0

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        self.documents += count


def naming(store: DocumentStore) -> set[str]:
    """Return the documents that have the title "World War II" as a term."""
    query = store.lexical.read("unheard", title="World War II")
    found = store.lexical.search(query, 10).vector_ids.tolist()
    return {summary.id for summary in store.get(found).values()}


def test_a_pass_finds_later_titles_and_forgets_former_ones(
    store: DocumentStore, entry: MakeEntry
) -> None:
    put_all(store, entry)
    assert naming(store) == {"war"}
    store.lexical.refresh_titles(SilentProgress())
    assert naming(store) == {"war", "names it", "names it, too"}
    changes = store.lexical.snapshot().changes
    store.lexical.refresh_titles(SilentProgress())
    assert store.lexical.snapshot().changes == changes
    store.put([entry("war", TEXTS["war"][1], "A war")])
    assert naming(store) == {"names it", "names it, too"}
    store.lexical.refresh_titles(SilentProgress())
    assert naming(store) == set()
    store.put([entry("war", TEXTS["war"][1], "World War II")])
    store.lexical.refresh_titles(SilentProgress())
    store.delete(["names it"])
    assert naming(store) == {"war", "names it, too"}


def test_a_pass_that_was_stopped_is_repeated(
    store: DocumentStore, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.lexical.segmented_index._READ_FOR_TITLES", 1)
    put_all(store, entry)
    store.lexical.refresh_titles(SilentProgress(), iter([False, False, True]).__next__)
    assert store.lexical.changes_since_title_refresh() >= len(TEXTS)  # it is not complete
    progress = CountingProgress()
    store.lexical.refresh_titles(progress)
    assert progress.documents == len(TEXTS)
    assert store.lexical.changes_since_title_refresh() == 0


def test_store_system_and_rows_score_alike(store: DocumentStore, entry: MakeEntry) -> None:
    put_all(store, entry)
    store.lexical.refresh_titles(SilentProgress())
    titles = [title for title, _ in TEXTS.values()]
    texts = [text for _, text in TEXTS.values()]
    ids = np.array([store.find([name])[name].vector_id for name in TEXTS])
    system = lexical_system(texts, titles)
    table = system.score(np.arange(len(texts)))
    assert table[0, 1] > lexical_system(texts).score(np.arange(len(texts)))[0, 1]
    pairs = np.array([[0, 1], [1, 2], [2, 3], [2, 1]])
    rows = term_cosines(rows_of_texts(texts, titles), pairs, SilentProgress())
    assert rows == pytest.approx(table[pairs[:, 0], pairs[:, 1]], abs=1e-5)
    stored = term_cosines(store.lexical.term_rows(ids, SilentProgress()), pairs, SilentProgress())
    assert stored == pytest.approx(rows, abs=1e-5)
    for row, vector_id in enumerate(ids.tolist()):
        query = store.lexical.read_stored(vector_id)
        np.testing.assert_allclose(store.lexical.score(query, ids), table[row], atol=1e-5)


def test_the_title_is_named_among_terms(store: DocumentStore, entry: MakeEntry) -> None:
    put_all(store, entry)
    store.lexical.refresh_titles(SilentProgress())
    query = store.lexical.read("A story of World War II.")
    ids = store.lexical.search(query, 10).vector_ids.tolist()
    first = {n: terms[0].term for n, terms in store.lexical.explain(query, ids).items()}
    term_of = {summary.id: first[n] for n, summary in store.get(ids).items()}
    assert {name for name, term in term_of.items() if term == '"world war ii"'} == {
        "war",
        "names it",
        "names it, too",
    }


def test_an_unknown_document_scores_nothing(store: DocumentStore, entry: MakeEntry) -> None:
    put_all(store, entry)
    rows = store.lexical.term_rows(np.array([1, 99]), SilentProgress())
    assert len(rows) == 2
    progress = CountingProgress()
    assert term_cosines(rows, np.array([[0, 1]]), progress).tolist() == [0.0]
    assert progress.documents == 1
    assert len(store.lexical.term_rows(np.zeros(0, dtype=np.int64), SilentProgress())) == 0


TERMS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=8)


@given(st.lists(TERMS, min_size=2, max_size=6), st.integers(0, 5))
def test_cosines_are_those_of_dense_vectors(texts: list[list[str]], cut: int) -> None:
    names = "abcde"
    terms = [*names, *(f"{name} {other}" for name in names for other in names)]
    counted = [count_terms_and_titles(" ".join(text)) for text in texts]
    counts = np.array([[counts[term] for term in terms] for counts in counted], dtype=np.float64)
    having = (counts > 0).sum(axis=0)
    levels = np.array([level_of(term) for term in terms], dtype=np.uint8)
    idf = inverse_document_frequencies(having, levels, len(texts))
    weights = np.sqrt(counts) * idf
    weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    pairs = np.array(list(combinations(range(len(texts)), 2)), dtype=np.int64)
    expected = np.einsum("ij,ij->i", weights[pairs[:, 0]], weights[pairs[:, 1]])
    rows = rows_of_texts([" ".join(text) for text in texts])
    assert term_cosines(rows, pairs, SilentProgress()) == pytest.approx(expected, abs=1e-6)
    documents = [
        (np.flatnonzero(row).astype(np.uint32), row[row > 0].astype(np.uint16)) for row in counts
    ]
    parts = [some for some in (documents[:cut], documents[cut:]) if some]
    joined = join_rows([weigh_rows(some, idf) for some in parts])
    assert term_cosines(joined, pairs, SilentProgress()) == pytest.approx(expected, abs=1e-6)

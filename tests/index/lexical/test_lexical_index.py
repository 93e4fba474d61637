"""The lexical index: what it finds, and that it always says what the texts of the store say."""

import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import index.lexical.lexical_index
import index.lexical.scoring
from encoder.blocks import Receipt
from encoder.terms.general_words import share_of, word_levels
from index.document import Document
from index.id_set import IdSet
from index.lexical.scoring import LexicalQuery, TermRows
from index.lexical.segment import QueryReads
from index.lexical.tables import MAX_COUNT
from index.lexical.terms import QUOTE, count_terms_and_titles, is_pair, level_of
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry

TEXTS = {
    "ants": "Ants live in colonies of the forest. Workers carry leaves, and ants dig the soil.",
    "bees": "Bees live in hives of the forest. Workers carry nectar, and bees dance.",
    "law": "The tribunal of the town held the assessment void. The appeal was allowed.",
    "tax": "The tribunal of the county reduced the assessment of the tax, number 4711.",
    "rivers": "Rivers carve valleys. The ice of the glacier carves them, too, but faster.",
}


@pytest.fixture
def filled(store: DocumentStore, entry: MakeEntry) -> DocumentStore:
    store.put([entry(name, text) for name, text in TEXTS.items()])
    return store


def find(store: DocumentStore, text: str, k: int = 10) -> dict[str, float]:
    """Return the scores of the documents that a text finds, best first."""
    matches = store.lexical.search(store.lexical.read(text), k)
    summaries = store.get(matches.vector_ids.tolist())
    return {
        summaries[vector_id].id: score
        for vector_id, score in zip(
            matches.vector_ids.tolist(), matches.scores.tolist(), strict=True
        )
    }


def assert_says_what_the_texts_say(store: DocumentStore) -> None:
    """Compare the words of every document with the texts that are stored; titles apart."""
    snapshot = store.lexical.snapshot()
    rows = sql(store.path, "SELECT vector_id, text FROM documents ORDER BY vector_id")
    names = dict(sql(store.lexical.path, "SELECT term_id, term FROM terms"))
    assert snapshot.present_ids().tolist() == [row[0] for row in rows]
    assert snapshot.number == len(rows)
    documents = Counter[int]()
    for vector_id, text in rows:
        ids, counts = (array.tolist() for array in snapshot.terms_of(vector_id))
        assert ids == sorted(ids)
        documents.update(ids)
        held = {names[n]: count for n, count in zip(ids, counts, strict=True)}
        assert {term: n for term, n in held.items() if term[0] != QUOTE} == {
            term: min(n, MAX_COUNT) for term, n in count_terms_and_titles(text).items()
        }
    frequencies = snapshot.terms.frequencies
    assert {n: int(frequencies[n]) for n in np.flatnonzero(frequencies).tolist()} == documents
    assert all(snapshot.terms.levels[n] == level_of(term) for n, term in names.items())


def exact_cosine(texts: dict[str, str], query: str, document: str) -> float:
    """The formula of the module, term by term."""
    counts = {name: count_terms_and_titles(text) for name, text in texts.items()}
    frequency = Counter(term for count in counts.values() for term in count)
    wanted, held = count_terms_and_titles(query), counts[document]

    def weigh(some: Counter[str], term: str) -> float:
        level = word_levels().get(term)
        prior = 0.5 if level is None else max(100 * share_of(level), 0.5)
        idf = max(np.log((len(texts) + 100) / 2 / (frequency[term] + prior)), 0.0)
        return float(np.sqrt(some[term]) * idf * (0.6 if is_pair(term) else 1.0))

    dot = sum(weigh(wanted, term) * weigh(held, term) for term in wanted if term in held)
    norms = [np.sqrt(sum(weigh(some, term) ** 2 for term in some)) for some in (wanted, held)]
    return float(dot / (norms[0] * norms[1]))


def test_the_score_is_the_cosine_of_the_formula(filled: DocumentStore) -> None:
    query = "The tribunal reduced the tax of the ants, and workers dance."
    expected = {name: exact_cosine(TEXTS, query, name) for name in TEXTS}
    assert find(filled, query) == pytest.approx(
        {name: score for name, score in expected.items() if score > 0}, abs=1e-5
    )
    assert expected["rivers"] == 0.0
    scores = list(find(filled, query).values())
    assert scores == sorted(scores, reverse=True)


def test_numbers_case_and_diacritics(filled: DocumentStore) -> None:
    assert list(find(filled, "4711")) == ["tax"]
    assert list(find(filled, "GLÁCIER")) == ["rivers"]
    assert count_terms_and_titles("Straße ÉCOLE ecole ﬁsh x_y don't") == Counter(
        {
            **{"straße": 1, "ecole": 2, "fish": 1, "x": 1, "y": 1, "don": 1},
            **{"straße ecole": 1, "ecole ecole": 1, "ecole fish": 1, "fish x": 1, "x y": 1},
            **{"y don": 1},  # "t" is a function word
        }
    )


def test_pairs_with_a_function_word_are_no_terms() -> None:
    counted = count_terms_and_titles("The ant colony of the forest. Ant colony!")
    assert {term: n for term, n in counted.items() if is_pair(term)} == {
        "ant colony": 2,
        "forest ant": 1,
    }
    assert not is_pair("ant")
    assert not is_pair('"ant colony"')


def test_a_stored_query_is_that_of_its_text(filled: DocumentStore) -> None:
    for name, text in TEXTS.items():
        stored = filled.lexical.read_stored(filled.find([name])[name].vector_id)
        read = filled.lexical.read(text)
        assert stored.weights == pytest.approx(read.weights, abs=1e-6)
        for field in ("term_ids", "idf", "documents", "pairs"):
            assert (getattr(stored, field) == getattr(read, field)).all()
    assert len(filled.lexical.read_stored(999)) == 0


def test_any_two_texts_are_compared_as_a_search_scores_them(filled: DocumentStore) -> None:
    ids = {name: stored.vector_id for name, stored in filled.find(list(TEXTS)).items()}
    others = [*TEXTS.values(), "Zanzibar has ants.", "Ants of Zanzibar", ""]
    for vector_id in ids.values():
        for text in others:
            (score,) = filled.lexical.score(filled.lexical.read(text), np.array([vector_id]))
            assert filled.lexical.compare(vector_id, (text, "")) == pytest.approx(score, abs=1e-6)
            assert filled.lexical.compare((text, ""), vector_id) == pytest.approx(score, abs=1e-6)
        for name, other in ids.items():
            as_text = filled.lexical.compare(vector_id, (TEXTS[name], ""))
            assert filled.lexical.compare(vector_id, other) == pytest.approx(as_text, abs=1e-6)
    unknown = filled.lexical.compare(("Zanzibar!", ""), ("Zanzibar has ants.", ""))
    assert 0.3 < unknown < 1.0
    assert filled.lexical.compare(("Zanzibar!", ""), ("zanzibar", "")) == pytest.approx(1.0)
    assert filled.lexical.compare(999, ("ants", "")) == filled.lexical.compare(("", ""), 999) == 0.0


@pytest.mark.parametrize(
    ("stored", "text", "score"),
    [
        (["ants dig soil"], "ants dig soil", 1.0),  # a collection of one document
        (["ants dig soil"] * 3, "ants dig soil", 1.0),  # of equal documents
        (["ants dig soil", "?!"], "", 0.0),
        (["and of the", "ants"], "and of the", 0.0),
        (["ants dig soil", "bees"], "zanzibar", 0.0),
        (["ants"], "ants", 1.0),
        (["ants " * 1_000_000], "ants", 1.36**-0.5),  # with the pair "ants ants"
    ],
)
def test_every_text_has_a_defined_score(
    store: DocumentStore, entry: MakeEntry, stored: list[str], text: str, score: float
) -> None:
    store.put([entry(str(n), content) for n, content in enumerate(stored)])
    first = np.array([store.find(["0"])["0"].vector_id])
    assert store.lexical.score(store.lexical.read(text), first) == pytest.approx(score, abs=0.01)
    assert store.lexical.compare((text, ""), int(first[0])) == pytest.approx(score, abs=0.01)


def test_unknown_words_lower_a_score_as_they_do_once_stored(
    store: DocumentStore, entry: MakeEntry
) -> None:
    store.put([entry(name, text) for name, text in TEXTS.items() if name != "ants"])
    bees = np.array([store.find(["bees"])["bees"].vector_id])
    (before,) = store.lexical.score(store.lexical.read(TEXTS["ants"]), bees)
    store.put([entry("ants", TEXTS["ants"])])
    (after,) = store.lexical.score(store.lexical.read(TEXTS["ants"]), bees)
    others = {name: text for name, text in TEXTS.items() if name != "ants"}
    assert before == pytest.approx(exact_cosine(others, TEXTS["ants"], "bees"), abs=1e-6)
    assert after == pytest.approx(exact_cosine(TEXTS, TEXTS["ants"], "bees"), abs=1e-6)
    assert after == pytest.approx(before, abs=0.03)


def test_shared_terms_explain_a_score(filled: DocumentStore) -> None:
    query = filled.lexical.read("tribunal assessment of ants and of the tribunal")
    ids = {name: stored.vector_id for name, stored in filled.find(list(TEXTS)).items()}
    explained = filled.lexical.explain(query, [*ids.values(), 999])
    assert explained.keys() == set(ids.values())
    law = explained[ids["law"]]
    assert [term.term for term in law][:2] == ["tribunal", "assessment"]
    assert sum(term.weight for term in law) == pytest.approx(1.0)
    assert explained[ids["rivers"]] == ()
    (first,) = filled.lexical.explain(query, [ids["law"]], limit=1)[ids["law"]]
    assert first == law[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        " \n\t ",
        "?!… — (*)",
        '" OR NEAR( NOT *',
        '"',
        "ants' --",
        "\ud800",
        "a" * 1_000_000,
        "terms: -postings ^x {a b}: + \x00 tribunal",
        "unknownword",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_no_text_is_a_query_syntax(filled: DocumentStore, text: str) -> None:
    expected = {"ants'": {"ants"}, "terms": {"law", "tax"}}.get(text.split(" ")[0].strip(":"), ())
    assert set(find(filled, text)) == set(expected)


def test_a_hostile_text_is_stored_and_found(store: DocumentStore, entry: MakeEntry) -> None:
    texts = ['" OR * NEAR(', "?!", "x" * 1_000_000, "one\x00bee", "ants " * 100_000]
    store.put([entry(str(n), text) for n, text in enumerate(texts)])
    assert list(find(store, "bee")) == ["3"]
    assert_says_what_the_texts_say(store)
    store.delete([str(n) for n in range(len(texts))])
    assert_says_what_the_texts_say(store)


def test_queries_without_known_words_find_nothing(filled: DocumentStore) -> None:
    query = filled.lexical.read("unheard unseen")
    assert len(query) == 0
    assert filled.lexical.candidates(QueryReads(query), 5, None).tolist() == []
    among = IdSet(10, inverted=True)
    assert filled.lexical.search(query, 5, among=among, least=5).scores.tolist() == []
    assert filled.lexical.score(query, np.array([1, 999])).tolist() == [0, 0]


WORDS = st.text(string.ascii_lowercase[:6] + " Éß1", min_size=1, max_size=12).filter(str.strip)
CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | WORDS), max_size=12)


@given(CHANGES)
def test_tables_follow_any_changes(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str | None]]
) -> None:
    path = tmp_path_factory.mktemp("changes") / "store.sqlite3"
    store = DocumentStore(path, fingerprint="a" * 64, dimension=2)
    vector = np.array([1, 0], dtype=np.float32)
    for name, text in changes:
        if text is None:
            store.delete([name])
        else:
            store.put([EncodedDocument(Document(name, text), vector, Receipt(1, 1, 1, 0, 1))])
    assert_says_what_the_texts_say(store)
    store.close()


def query_of(documents: Sequence[int], term_ids: Sequence[int] | None = None) -> LexicalQuery:
    number = len(documents)
    return LexicalQuery(
        term_ids=np.arange(number) if term_ids is None else np.array(term_ids),
        weights=np.ones(number, dtype=np.float32),
        idf=np.ones(number, dtype=np.float32),
        documents=np.array(documents),
        pairs=np.zeros(number, dtype=np.bool_),
    )


def test_terms_whose_ids_end_alike_are_told_apart() -> None:
    ids = [7, 9, 7 + 2**16, 7 + 2**17]
    held = np.array([7, 7 + 2**16, 9 + 2**16, 7 + 2**18], dtype=np.uint32)
    documents, ones = TermRows(held, np.ones(4, np.float32), np.array([4])), np.ones(4, np.float32)
    (shared,) = index.lexical.scoring.shared_terms(np.array(ids), ones, documents, 9)
    assert shared == [(0, 0.5), (2, 0.5)]


def test_candidate_terms_stay_within_the_postings_budget() -> None:
    budget, limit = index.lexical.scoring.POSTINGS_BUDGET, index.lexical.scoring.QUERY_TERMS
    assert index.lexical.scoring.candidate_terms(query_of([budget + 1, 2, 2])) == [0]
    assert index.lexical.scoring.candidate_terms(query_of([budget - 2, 3, 1, 2])) == [0, 3]
    assert len(index.lexical.scoring.candidate_terms(query_of([2] * 2 * limit))) == limit
    assert index.lexical.scoring.candidate_terms(query_of([])) == []


def test_forgotten_names_are_read_again(
    filled: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.lexical.lexical_index, "_NAMES_KEPT", 12)
    words = dict(sql(filled.lexical.path, "SELECT term_id, term FROM terms ORDER BY term_id"))
    ids = list(words)
    for start in range(0, len(ids), 5):
        some = set(ids[start : start + 10])  # half of them are known
        found = filled.lexical._names_of(filled.lexical.snapshot().identity, some)
        assert {term_id: found[term_id] for term_id in some} == {
            term_id: words[term_id] for term_id in some
        }
        assert len(found) <= 20

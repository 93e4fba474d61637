"""The search: scores of the three modes, and `top_k` hits whatever was deleted or changed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.records import AlignmentReceipt, Bounds, Hit, Mode, SearchOptions
from index.store.filters import OneOf
from tests.index.search.plane import MODES, answer, direction, names, put, stored_query

# id -> text, angle of its vector from that of the query. The best match is second by each channel.
DOCUMENTS = {
    "best": ("heron egret marsh reed", 20.0),
    "words alone": ("heron egret marsh reed bittern", 85.0),
    "vector alone": ("court appeal judge", 10.0),
    "neither": ("court motor bolt", 88.0),
    "far": ("judge motor nut", 120.0),
}
BIRDS = ("heron", "egret", "bittern")  # fewer than half of the documents have each
QUERY = EncodedQuery("heron egret marsh reed bittern motor", direction(0.0))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = open_data_directory(tmp_path / "data", fingerprint="a" * 64, dimension=2)
    put(opened, DOCUMENTS)
    yield opened
    opened.close()


def find(data: DataDirectory, query: EncodedQuery, k: int, mode: Mode) -> tuple[Hit, ...]:
    return answer(data, query, SearchOptions(top_k=k, mode=mode)).hits


def test_hybrid_finds_what_neither_channel_puts_first(data: DataDirectory) -> None:
    assert names(find(data, QUERY, 2, "semantic")) == ["vector alone", "best"]
    assert names(find(data, QUERY, 2, "lexical")) == ["words alone", "best"]
    assert names(find(data, QUERY, 5, "hybrid"))[0] == "best"
    assert set(names(find(data, QUERY, 9, "hybrid"))) == set(DOCUMENTS)


def unaligned(cosine: float, mode: Mode) -> float:
    """Return the semantic score of a document without block vectors, by the line of the rule."""
    weight = {"hybrid": 0.25}.get(mode, 0.4)
    return (1 - weight) * cosine + weight * max(0.0, 0.5 * cosine + 0.2)


def test_every_hit_has_its_scores_and_its_terms(data: DataDirectory) -> None:
    by_name = {hit.id: hit for hit in find(data, QUERY, 9, "hybrid")}
    for name, (_, degrees) in DOCUMENTS.items():
        hit = by_name[name]
        assert hit.lexical_score is not None
        assert hit.score == pytest.approx(0.5 * hit.semantic_score + 0.5 * hit.lexical_score)
        assert bool(hit.terms) == (hit.lexical_score > 0)
        cosine = np.cos(np.deg2rad(degrees))
        assert hit.vector_score == pytest.approx(cosine, abs=1e-6)
        assert hit.semantic_score == pytest.approx(unaligned(cosine, "hybrid"), abs=1e-6)
        assert hit.alignment_score is None
    for hit in find(data, QUERY, 9, "lexical"):
        same = by_name[hit.id]
        assert hit.score == hit.lexical_score == pytest.approx(same.lexical_score)
        semantic = unaligned(same.vector_score, "lexical")
        assert (hit.semantic_score, hit.terms) == (pytest.approx(semantic), same.terms)
        assert (hit.vector_score, hit.alignment_score) == (pytest.approx(same.vector_score), None)
    for hit in find(data, QUERY, 9, "semantic"):
        same = by_name[hit.id]
        semantic = unaligned(same.vector_score, "semantic")
        assert hit.score == hit.semantic_score == pytest.approx(semantic)
        assert (hit.vector_score, hit.lexical_score) == (pytest.approx(same.vector_score), None)
    assert [term.term for term in by_name["far"].terms] == ["motor"]


@pytest.mark.parametrize("mode", MODES)
def test_a_stored_query_is_left_out_of_its_own_matches(data: DataDirectory, mode: Mode) -> None:
    query = stored_query(data, "best", direction(20.0))
    assert "best" not in names(find(data, query, 9, mode))
    assert len(find(data, query, 1, mode)) == 1


@pytest.mark.parametrize("text", ["", "?!", "unknown", "\x00"])
def test_a_text_without_an_indexed_word(data: DataDirectory, text: str) -> None:
    query = EncodedQuery(text, direction(0.0))
    assert find(data, query, 5, "lexical") == ()
    found = answer(data, query, SearchOptions(top_k=5))
    nearest = find(data, query, 5, "semantic")
    assert names(found.hits) == names(nearest)
    assert [hit.score for hit in found.hits] == pytest.approx(
        [hit.score for hit in nearest], abs=1e-6
    )
    assert found.scored_as == "semantic"
    assert answer(data, QUERY, SearchOptions(top_k=5)).scored_as == "hybrid"


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_a_deleted_document_never_comes_back(data: DataDirectory, mode: Mode) -> None:
    data.store.delete(["best"])  # the vector index does not know it yet
    assert "best" not in names(find(data, QUERY, 9, mode))
    assert len(find(data, QUERY, 9, "hybrid")) == 4
    data.index.catch_up()
    put(data, {"best": ("court", 30.0)})
    (again,) = [hit for hit in find(data, QUERY, 9, "hybrid") if hit.id == "best"]
    assert (again.lexical_score, again.terms) == (0.0, ())


def test_more_than_the_usual_number_of_candidates(data: DataDirectory) -> None:
    put(data, {f"n{n}": (f"{BIRDS[n % 3]} n{n}", float(n % 90)) for n in range(400)})
    assert len(find(data, QUERY, 350, "lexical")) == 350
    assert len(find(data, QUERY, 380, "hybrid")) == 380


@pytest.mark.parametrize("text", [" ".join(BIRDS), "unknown"])
@pytest.mark.parametrize("top_k", [1, 10, 100])
def test_deleted_candidates_are_replaced(data: DataDirectory, text: str, top_k: int) -> None:
    """The index still holds the nearest 300 vectors: more than are candidates at first."""
    put(data, {f"n{n}": (f"{BIRDS[n % 3]} n{n}", n / 10) for n in range(450)})
    query = EncodedQuery(text, direction(0.0))
    data.store.delete([f"n{n}" for n in range(300)])
    modes: tuple[Mode, ...] = ("semantic", "hybrid") if text == "unknown" else MODES
    for mode in modes:
        hits = find(data, query, top_k, mode)
        assert len(hits) == top_k
        assert not {f"n{n}" for n in range(300)} & set(names(hits))
    nearest = [name for name in names(find(data, query, top_k, "semantic")) if name[0] == "n"]
    assert nearest == [f"n{n}" for n in range(300, 300 + len(nearest))]


def test_a_search_widens_where_a_single_hit_is_missing(data: DataDirectory) -> None:
    put(data, {f"n{n}": (f"{BIRDS[n % 3]} n{n}", n / 10) for n in range(450)})
    query = EncodedQuery("unknown", direction(0.0))
    for number in range(180, 200):  # of the first 200 candidates
        data.store.delete([f"n{n}" for n in range(number)])
        assert len(find(data, query, 10, "semantic")) == 10


@pytest.mark.parametrize("mode", MODES)
def test_changed_documents_do_not_shorten_the_answer(data: DataDirectory, mode: Mode) -> None:
    documents = {f"n{n}": (f"{BIRDS[n % 3]} n{n}", n / 10) for n in range(400)}
    put(data, documents, kept=True)
    first = {name: documents[name] for name in list(documents)[:300]}
    options = SearchOptions(top_k=60, mode=mode, where=OneOf("/kept", (True,)))
    hits = answer(data, QUERY, options, between=lambda: put(data, first, kept=False)).hits
    assert len(hits) == 60
    assert all(hit.metadata["kept"] for hit in hits)


def test_a_store_without_a_space_aligns_nothing(data: DataDirectory) -> None:
    found = answer(data, QUERY, SearchOptions(top_k=2))
    assert found.alignment == AlignmentReceipt(aligned=False, candidates=5, scored=0)
    assert "align" in found.seconds
    for options in (SearchOptions(top_k=2, alignment=None), SearchOptions(top_k=2, mode="lexical")):
        without = answer(data, QUERY, options)
        assert without.alignment is None
        assert "align" not in without.seconds
    assert answer(data, QUERY, SearchOptions(top_k=2, alignment=None)).hits == found.hits


def test_no_hit_is_outside_of_the_bounds(data: DataDirectory) -> None:
    for mode in MODES:
        every = find(data, QUERY, 9, mode)
        bounds = Bounds(min_score=every[1].score)
        options = SearchOptions(top_k=9, mode=mode, bounds=bounds)
        assert answer(data, QUERY, options).hits == every[:2]
        unknown = SearchOptions(top_k=9, mode=mode, bounds=Bounds(min_probability=0.0))
        assert answer(data, QUERY, unknown).hits == ()

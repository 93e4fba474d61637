"""The three modes: both scores of every match, hybrid at least as good as each channel."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.search.fusion import LinearFusion
from index.search.search import Asked, Found, search_hybrid, search_lexical, search_semantic
from index.store.records import EncodedDocument

Search = Callable[[DataDirectory, Asked, int], tuple[Found, ...]]
RULE = LinearFusion(0.5)


def direction(degrees: float) -> Float32:
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


# id -> text, angle of its vector from that of the query. The best match is second by each channel.
DOCUMENTS = {
    "best": ("heron egret marsh reed", 20.0),
    "words alone": ("heron egret marsh reed bittern", 85.0),
    "vector alone": ("court appeal judge", 10.0),
    "neither": ("court motor bolt", 88.0),
    "far": ("judge motor nut", 120.0),
}
QUERY = Asked("heron egret marsh reed bittern motor", direction(0.0))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = open_data_directory(tmp_path / "data", fingerprint="a" * 64, dimension=2)
    put(opened, DOCUMENTS)
    yield opened
    opened.close()


def put(data: DataDirectory, documents: dict[str, tuple[str, float]]) -> None:
    entries = [
        EncodedDocument(Document(name, text), direction(degrees), Receipt(1, 1, 1, 0))
        for name, (text, degrees) in documents.items()
    ]
    data.index.apply(data.store.put(entries))


def names(data: DataDirectory, found: tuple[Found, ...]) -> list[str]:
    summaries = data.store.get([one.vector_id for one in found])
    return [summaries[one.vector_id].id for one in found]


def lexical(data: DataDirectory, asked: Asked, k: int) -> tuple[Found, ...]:
    return search_lexical(data, asked, k).found


def hybrid(data: DataDirectory, asked: Asked, k: int) -> tuple[Found, ...]:
    return search_hybrid(data, asked, k, RULE).found


def test_hybrid_finds_what_neither_channel_puts_first(data: DataDirectory) -> None:
    assert names(data, search_semantic(data, QUERY, 2)) == ["vector alone", "best"]
    assert names(data, lexical(data, QUERY, 2)) == ["words alone", "best"]
    assert names(data, hybrid(data, QUERY, 5))[0] == "best"
    assert set(names(data, hybrid(data, QUERY, 9))) == set(DOCUMENTS)


def test_every_match_has_both_scores_and_its_terms(data: DataDirectory) -> None:
    for found in hybrid(data, QUERY, 9):
        assert found.lexical is not None
        assert found.score == pytest.approx(0.5 * found.semantic + 0.5 * found.lexical)
        assert bool(found.terms) == (found.lexical > 0)
    by_name = dict(zip(names(data, hybrid(data, QUERY, 9)), hybrid(data, QUERY, 9), strict=True))
    for name, (_, degrees) in DOCUMENTS.items():
        assert by_name[name].semantic == pytest.approx(np.cos(np.deg2rad(degrees)), abs=1e-6)
    for one in lexical(data, QUERY, 9):
        (same,) = [other for other in by_name.values() if other.vector_id == one.vector_id]
        assert one.score == one.lexical == pytest.approx(same.lexical)
        assert (one.semantic, one.terms) == (pytest.approx(same.semantic), same.terms)
    assert [term.term for term in by_name["far"].terms] == ["motor"]


@pytest.mark.parametrize(("weight", "search"), [(0.0, search_semantic), (1.0, lexical)])
def test_a_rule_of_one_channel_ranks_as_that_channel(
    data: DataDirectory, weight: float, search: Search
) -> None:
    alone = names(data, search(data, QUERY, 9))
    both = names(data, search_hybrid(data, QUERY, 9, LinearFusion(weight)).found)
    assert both[: len(alone)] == alone


@pytest.mark.parametrize("search", [search_semantic, lexical, hybrid])
def test_a_stored_query_is_left_out_of_its_own_matches(data: DataDirectory, search: Search) -> None:
    stored = data.store.find(["best"])["best"]
    asked = Asked(stored.document.text, direction(20.0), stored.vector_id)
    assert "best" not in names(data, search(data, asked, 9))
    assert len(search(data, asked, 1)) == 1


@pytest.mark.parametrize("text", ["", "?!", "unknown", "\x00"])
def test_a_text_without_an_indexed_word(data: DataDirectory, text: str) -> None:
    asked = Asked(text, direction(0.0))
    assert lexical(data, asked, 5) == ()
    found = hybrid(data, asked, 5)
    nearest = search_semantic(data, asked, 5)
    assert [one.vector_id for one in found] == [one.vector_id for one in nearest]
    assert [one.score for one in found] == pytest.approx([one.score for one in nearest], abs=1e-6)
    assert search_hybrid(data, asked, 5, RULE).scored_as == "semantic"
    assert search_hybrid(data, QUERY, 5, RULE).scored_as == "hybrid"


@pytest.mark.parametrize("search", [lexical, hybrid])
def test_a_deleted_document_never_comes_back(data: DataDirectory, search: Search) -> None:
    data.store.delete(["best"])  # the vector index does not know it yet
    assert "best" not in names(data, search(data, QUERY, 9))
    assert len(names(data, hybrid(data, QUERY, 9))) == 4
    data.index.catch_up()
    put(data, {"best": ("court", 30.0)})
    (again,) = [one for one in hybrid(data, QUERY, 9) if one.semantic > 0.8 and one.semantic < 0.9]
    assert (again.lexical, again.terms) == (0.0, ())


@pytest.mark.parametrize("search", [search_semantic, lexical, hybrid])
def test_an_empty_directory(tmp_path: Path, search: Search) -> None:
    data = open_data_directory(tmp_path / "empty", fingerprint="a" * 64, dimension=2)
    assert search(data, QUERY, 3) == ()
    data.close()


def test_more_than_the_usual_number_of_candidates(data: DataDirectory) -> None:
    put(data, {f"n{n}": (f"heron common n{n}", float(n % 90)) for n in range(400)})
    assert len(lexical(data, QUERY, 350)) == 350
    assert len(hybrid(data, QUERY, 380)) == 380

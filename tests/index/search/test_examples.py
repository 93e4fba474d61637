"""A search by several examples: what it finds, its scores, and what it leaves out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import neutral_space
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.ranker import UNLIKE_WEIGHT, combine_scores
from index.search.records import AlignmentOptions, Examples, Mode, SearchAnswer, SearchOptions
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import OneOf
from tests.index.search.plane import MODES, answer, direction, entry, names, stored_query

EVERYTHING = AlignmentOptions(budget_seconds=60.0)


# id -> text, angle of its vector.
DOCUMENTS = {
    "birds": ("heron egret marsh reed bittern", 0.0),
    "courts": ("court appeal judge verdict motor", 90.0),
    "both": ("heron egret court appeal reed", 45.0),
    "birds too": ("heron egret marsh reed nut", 5.0),
    "courts too": ("court appeal judge verdict bolt", 85.0),
    "neither": ("motor bolt nut bittern", 200.0),
}


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = open_data_directory(tmp_path / "data", fingerprint="a" * 64, dimension=2)
    put(opened)
    yield opened
    opened.close()


def put(data: DataDirectory, *, blocks: bool = False) -> None:
    entries = []
    for name, (text, degrees) in DOCUMENTS.items():
        vector = direction(degrees)
        kept = BlockVectors(np.array([[0, len(text)]]), vector[np.newaxis]) if blocks else None
        entries.append(entry(name, text, vector, kept, {"bird": "heron" in text}))
    data.index.apply(data.store.put(entries))


def example(text: str, degrees: float) -> EncodedQuery:
    return EncodedQuery(text, direction(degrees))


def stored(data: DataDirectory, name: str) -> EncodedQuery:
    return stored_query(data, name, direction(DOCUMENTS[name][1]))


def find(
    data: DataDirectory, query: EncodedQuery | Examples, mode: Mode, **more: object
) -> SearchAnswer:
    given = SearchOptions(top_k=9, mode=mode, alignment=EVERYTHING)
    return answer(data, query, replace(given, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_like_all_examples_comes_first(data: DataDirectory, mode: Mode) -> None:
    birds, courts = example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"])
    assert names(find(data, birds, mode).hits)[0] == "birds"
    found = find(data, Examples((birds, courts)), mode)
    assert names(found.hits)[0] == "both"
    assert found.scored_as == mode


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_each_example(data: DataDirectory, mode: Mode) -> None:
    like = (example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"]))
    unlike = (example("motor nut bolt", 200.0),)
    alone = [
        {hit.id: hit for hit in find(data, example, mode).hits} for example in (*like, *unlike)
    ]
    hits = find(data, Examples(like, unlike), mode).hits
    assert len(hits) >= 5
    for hit in hits:
        given = [hits_by_id[hit.id].score if hit.id in hits_by_id else 0.0 for hits_by_id in alone]
        assert (*hit.like_scores, *hit.unlike_scores) == pytest.approx(given, abs=1e-6)
        expected = combine_scores(
            np.array(hit.like_scores)[:, np.newaxis], [np.array(hit.unlike_scores)]
        )
        assert hit.score == pytest.approx(expected[0], abs=1e-6)
        vector = np.mean(
            [hits_by_id[hit.id].vector_score for hits_by_id in alone[:2] if hit.id in hits_by_id]
        )
        if all(hit.id in hits_by_id for hits_by_id in alone):
            assert hit.vector_score == pytest.approx(vector, abs=1e-6)
        assert (hit.probability, hit.false_positive_rate) == (None, None)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_the_formula() -> None:
    like = np.array([[0.64, 0.25, 0.04], [0.04, 0.25, -0.5]], dtype=np.float32)
    assert combine_scores(like, []) == pytest.approx([0.25, 0.25, 0.01])
    unlike = [np.array([0.9, 0.1, 0.0]), np.array([0.1, 0.2, 0.41])]
    lower = [0.25 - UNLIKE_WEIGHT * 0.65, 0.25, 0.01 - UNLIKE_WEIGHT * 0.4]
    assert combine_scores(like, unlike) == pytest.approx(lower)


@pytest.mark.parametrize("mode", MODES)
def test_examples_that_are_stored_are_no_hits(data: DataDirectory, mode: Mode) -> None:
    found = find(
        data, Examples((stored(data, "birds"),), (stored(data, "neither"),)), mode, top_k=9
    )
    assert not {"birds", "neither"} & set(names(found.hits))
    assert "birds too" in names(found.hits)


@pytest.mark.parametrize("mode", MODES)
def test_filters_and_exclusions_hold(data: DataDirectory, mode: Mode) -> None:
    examples = Examples((example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"])))
    where = OneOf("/bird", (True,))
    found = find(data, examples, mode, where=where, exclude=("birds",))
    assert set(names(found.hits)) == {"both", "birds too"}


def test_terms_are_those_of_the_liked(data: DataDirectory) -> None:
    examples = Examples(
        (example("heron marsh", 0.0), example("court judge", 90.0)), (example("motor", 200.0),)
    )
    hits = {hit.id: hit for hit in find(data, examples, "hybrid").hits}
    assert {term.term for term in hits["both"].terms} == {"heron", "court"}
    assert hits["neither"].terms == ()
    assert sum(term.weight for term in hits["both"].terms) == pytest.approx(1.0)
    assert sum(term.weight for term in hits["birds"].terms) == pytest.approx(1.0)


def test_the_best_are_aligned_with_every_example(tmp_path: Path) -> None:
    folder, space = tmp_path / "aligned", neutral_space(2)
    data = open_data_directory(folder, fingerprint="a" * 64, dimension=2, alignment=space)
    try:
        put(data, blocks=True)
        like = (stored(data, "birds"), stored(data, "courts"))
        found = find(data, Examples(like), "hybrid")
        assert found.alignment is not None
        assert found.alignment.aligned
        assert found.alignment.scored == len(found.hits) == 4
        alone = [{hit.id: hit for hit in find(data, example, "hybrid").hits} for example in like]
        for hit in found.hits:
            given = [hits_by_id[hit.id].alignment_score or 0.0 for hits_by_id in alone]
            assert hit.alignment_score == pytest.approx(np.mean(given), abs=1e-6)
        late = find(data, Examples(like), "hybrid", alignment=AlignmentOptions(budget_seconds=0))
        assert late.alignment is not None
        assert not late.alignment.aligned
        assert {hit.alignment_score for hit in late.hits} == {None}
    finally:
        data.close()

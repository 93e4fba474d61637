"""A search by several examples: what it finds, its scores, and what it leaves out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import neutral_space
from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.rankers import UNLIKE_WEIGHT, combine_scores
from index.search.records import (
    AlignmentOptions,
    EncodedQuery,
    Examples,
    Mode,
    SearchAnswer,
    SearchOptions,
)
from index.search.search import search, select_documents
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import OneOf
from index.store.records import EncodedDocument

RULE = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.2)
MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")
EVERYTHING = AlignmentOptions(budget_seconds=60.0)


def direction(degrees: float) -> Float32:
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


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
        document = Document(name, text, "", {"bird": "heron" in text})
        entries.append(EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1), kept))
    data.index.apply(data.store.put(entries))


def example(text: str, degrees: float) -> EncodedQuery:
    return EncodedQuery(text, direction(degrees))


def stored(data: DataDirectory, name: str) -> EncodedQuery:
    text, degrees = DOCUMENTS[name]
    vector_id = data.store.find([name])[name].vector_id
    return EncodedQuery(text, direction(degrees), vector_id=vector_id)


def answer(
    data: DataDirectory, query: EncodedQuery | Examples, mode: Mode, **more: object
) -> SearchAnswer:
    given = SearchOptions(top_k=9, mode=mode, alignment=EVERYTHING)
    options = replace(given, **more)  # type: ignore[arg-type]
    nothing = ScoreCalibrator(None, None, None)
    among = select_documents(data, options)
    return search(data, query, options, fusion=RULE, calibrator=nothing, among=among)


def names(found: SearchAnswer) -> list[str]:
    return [hit.id for hit in found.hits]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_like_all_examples_comes_first(data: DataDirectory, mode: Mode) -> None:
    birds, courts = example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"])
    assert names(answer(data, birds, mode))[0] == "birds"
    found = answer(data, Examples((birds, courts)), mode)
    assert names(found)[0] == "both"
    assert found.scored_as == mode


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_each_example(data: DataDirectory, mode: Mode) -> None:
    like = (example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"]))
    unlike = (example("motor nut bolt", 200.0),)
    alone = [{hit.id: hit for hit in answer(data, one, mode).hits} for one in (*like, *unlike)]
    hits = answer(data, Examples(like, unlike), mode).hits
    assert len(hits) >= 5
    for hit in hits:
        given = [one[hit.id].score if hit.id in one else 0.0 for one in alone]
        assert (*hit.like_scores, *hit.unlike_scores) == pytest.approx(given, abs=1e-6)
        expected = combine_scores(
            np.array(hit.like_scores)[:, np.newaxis], [np.array(hit.unlike_scores)]
        )
        assert hit.score == pytest.approx(expected[0], abs=1e-6)
        vector = np.mean([one[hit.id].vector_score for one in alone[:2] if hit.id in one])
        if all(hit.id in one for one in alone):
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
def test_one_example_ranks_as_a_query(data: DataDirectory, mode: Mode) -> None:
    query = example("heron egret marsh", 30.0)
    alone, as_example = answer(data, query, mode), answer(data, Examples((query,)), mode)
    positive = [hit.id for hit in alone.hits if hit.score > 0]
    assert names(as_example)[: len(positive)] == positive


@pytest.mark.parametrize("mode", MODES)
def test_examples_that_are_stored_are_no_hits(data: DataDirectory, mode: Mode) -> None:
    found = answer(
        data, Examples((stored(data, "birds"),), (stored(data, "neither"),)), mode, top_k=9
    )
    assert not {"birds", "neither"} & set(names(found))
    assert "birds too" in names(found)


def test_an_unlike_example_lowers_what_is_nearer_to_it(data: DataDirectory) -> None:
    like = (example("heron egret court", 45.0),)
    before = names(answer(data, Examples(like), "hybrid"))
    against = (example(*DOCUMENTS["birds too"]),)
    after = names(answer(data, Examples(like, against), "hybrid"))
    assert before.index("birds too") < after.index("birds too")
    assert after[0] == "both"


@pytest.mark.parametrize("mode", MODES)
def test_filters_and_exclusions_hold(data: DataDirectory, mode: Mode) -> None:
    examples = Examples((example(*DOCUMENTS["birds"]), example(*DOCUMENTS["courts"])))
    where = OneOf("/bird", (True,))
    found = answer(data, examples, mode, where=where, exclude=("birds",))
    assert set(names(found)) == {"both", "birds too"}


def test_terms_are_those_of_the_liked(data: DataDirectory) -> None:
    examples = Examples(
        (example("heron marsh", 0.0), example("court judge", 90.0)), (example("motor", 200.0),)
    )
    hits = {hit.id: hit for hit in answer(data, examples, "hybrid").hits}
    assert {one.term for one in hits["both"].terms} == {"heron", "court"}
    assert hits["neither"].terms == ()
    assert sum(one.weight for one in hits["both"].terms) == pytest.approx(1.0)
    assert sum(one.weight for one in hits["birds"].terms) == pytest.approx(1.0)


def test_the_best_are_aligned_with_every_example(tmp_path: Path) -> None:
    folder, space = tmp_path / "aligned", neutral_space(2)
    data = open_data_directory(folder, fingerprint="a" * 64, dimension=2, alignment=space)
    try:
        put(data, blocks=True)
        like = (stored(data, "birds"), stored(data, "courts"))
        found = answer(data, Examples(like), "hybrid")
        assert found.alignment is not None
        assert found.alignment.aligned
        assert found.alignment.scored == len(found.hits) == 4
        alone = [{hit.id: hit for hit in answer(data, one, "hybrid").hits} for one in like]
        for hit in found.hits:
            given = [one[hit.id].alignment_score or 0.0 for one in alone]
            assert hit.alignment_score == pytest.approx(np.mean(given), abs=1e-6)
        late = answer(data, Examples(like), "hybrid", alignment=AlignmentOptions(budget_seconds=0))
        assert late.alignment is not None
        assert not late.alignment.aligned
        assert {hit.alignment_score for hit in late.hits} == {None}
    finally:
        data.close()

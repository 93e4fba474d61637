"""Scores of matches are exact, whatever precision the index holds vectors in."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import Bounds, EncodedQuery, Hit, Mode, SearchOptions
from index.search.search import search
from index.store.records import EncodedDocument
from index.vectors.vector_index import Precision

DIMENSION = 64
COUNT = 400
RULE = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.2)
MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")


def unit_vectors(count: int, seed: int) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


VECTORS = unit_vectors(COUNT, seed=1)
QUERY = EncodedQuery("heron egret marsh", unit_vectors(1, seed=2)[0])


@pytest.fixture(params=["fp16", "int8"])
def data(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DataDirectory]:
    """An index of two lists, both of which a search visits by default."""
    precision: Precision = request.param
    monkeypatch.setattr("index.vectors.live_index.choose_nlist", lambda count: 2 if count else 1)
    opened = open_data_directory(
        tmp_path / "data", fingerprint="a" * 64, dimension=DIMENSION, index_precision=precision
    )
    words = ("heron marsh", "egret", "court appeal", "motor bolt")
    opened.store.put(
        [
            EncodedDocument(
                Document(f"d{row}", f"{words[row % 4]} word{row}"),
                VECTORS[row],
                Receipt(1, 1, 1, 0, 1),
            )
            for row in range(COUNT)
        ]
    )
    opened.index.rebuild()
    assert (opened.index.nlist, opened.index.exact) == (2, False)
    yield opened
    opened.close()


def find(data: DataDirectory, mode: Mode, k: int, bounds: Bounds | None = None) -> tuple[Hit, ...]:
    options = SearchOptions(top_k=k, mode=mode)
    if bounds is not None:
        options = replace(options, bounds=bounds)
    nothing = ScoreCalibrator(None, None, None)
    return search(data, QUERY, options, fusion=RULE, calibrator=nothing, among=None).hits


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_the_stored_vectors_and_in_their_order(
    data: DataDirectory, mode: Mode
) -> None:
    exact = VECTORS @ QUERY.vector
    hits = find(data, mode, 50)
    rows = [int(hit.id[1:]) for hit in hits]
    rounded = data.index.scores(QUERY.vector, np.array(rows) + 1)
    assert np.abs(rounded - exact[rows]).max() > 1e-5  # the index alone would not do
    weight = RULE.alignment_weight(mode)
    for hit, row in zip(hits, rows, strict=True):
        cosine = float(exact[row])
        semantic = (1 - weight) * cosine + weight * min(1.0, max(0.0, 0.5 * cosine + 0.2))
        assert hit.vector_score == pytest.approx(cosine, abs=1e-6)
        assert hit.semantic_score == pytest.approx(semantic, abs=1e-6)
        lexical = hit.lexical_score or 0.0
        expected = {"semantic": semantic, "lexical": lexical, "hybrid": (semantic + lexical) / 2}
        assert hit.score == pytest.approx(expected[mode], abs=1e-6)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_document_has_one_score_in_every_mode(data: DataDirectory) -> None:
    found = {mode: {hit.id: hit.vector_score for hit in find(data, mode, COUNT)} for mode in MODES}
    assert len(found["semantic"]) == COUNT
    for mode in MODES:
        for name, score in found[mode].items():
            assert score == pytest.approx(found["semantic"][name], abs=1e-7)


def test_a_bound_holds_for_the_exact_score(data: DataDirectory) -> None:
    hits = find(data, "semantic", 50)
    bound = Bounds(min_score=hits[20].score)
    assert [hit.id for hit in find(data, "semantic", 50, bound)] == [hit.id for hit in hits[:21]]


def test_best_are_those_of_brute_force(data: DataDirectory) -> None:
    exact = np.argsort(-(VECTORS @ QUERY.vector))
    found = [int(hit.id[1:]) for hit in find(data, "semantic", 20)]
    assert len(set(found) & set(exact[:20].tolist())) >= 19  # the last may be as near as the next
    assert found[:10] == exact[:10].tolist()

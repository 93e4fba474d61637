"""Scores of matches are exact, whatever precision the index holds vectors in."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.records import NO_BOUNDS, Bounds, Examples, Hit, Mode, SearchOptions
from index.vectors.vector_index import Precision
from tests.index.search.plane import MODES, RULE, answer, entry
from tests.kit.index_fixtures import unit_vectors

DIMENSION = 64
COUNT = 400
VECTORS = unit_vectors(COUNT, seed=1, dimension=DIMENSION)
QUERY = EncodedQuery("heron egret marsh", unit_vectors(1, seed=2, dimension=DIMENSION)[0])


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
    texts = [f"{words[row % 4]} word{row}" for row in range(COUNT)]
    opened.store.put([entry(f"d{row}", text, VECTORS[row]) for row, text in enumerate(texts)])
    opened.index.rebuild()
    assert (opened.index.nlist, opened.index.exact) == (2, False)
    yield opened
    opened.close()


def find(data: DataDirectory, mode: Mode, k: int, bounds: Bounds = NO_BOUNDS) -> tuple[Hit, ...]:
    return answer(data, QUERY, SearchOptions(top_k=k, mode=mode, bounds=bounds)).hits


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_the_stored_vectors(data: DataDirectory, mode: Mode) -> None:
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


def test_a_bound_holds_for_the_exact_score(data: DataDirectory) -> None:
    hits = find(data, "semantic", 50)
    bound = Bounds(min_score=hits[20].score)
    assert [hit.id for hit in find(data, "semantic", 50, bound)] == [hit.id for hit in hits[:21]]


def test_each_example_is_compared_with_the_stored_vectors(data: DataDirectory) -> None:
    """Several examples: the score that each gives is that of its own vector."""
    others = unit_vectors(2, seed=3, dimension=DIMENSION)
    like = tuple(EncodedQuery("", vector) for vector in (QUERY.vector, others[0]))
    wanted = Examples(like, (EncodedQuery("", others[1]),))
    hits = answer(data, wanted, SearchOptions(top_k=20, mode="semantic")).hits
    weight = RULE.alignment_weight("semantic")
    for hit in hits:
        cosines = np.stack([example.vector for example in wanted.all]) @ VECTORS[int(hit.id[1:])]
        expected = (1 - weight) * cosines + weight * np.clip(0.5 * cosines + 0.2, 0, 1)
        given = [*hit.like_scores, *hit.unlike_scores]
        np.testing.assert_allclose(given, expected, atol=1e-6)

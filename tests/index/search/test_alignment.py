"""The second stage of a search: candidates are ranked by their blocks, within the budget."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import neutral_space
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.records import (
    AlignmentOptions,
    AlignmentReceipt,
    Mode,
    SearchAnswer,
    SearchOptions,
)
from index.search.score import LinearFusion
from index.sqlite.block_vectors import BlockVectors
from tests.index.conftest import sql
from tests.index.search.plane import answer, direction, entry, names, stored_query

WIDTH = 8
RULE = LinearFusion(0.25, 0.6, 0.75, expected_slope=0.5, expected_intercept=-0.1)
UNHURRIED = AlignmentOptions(budget_seconds=math.inf)


def blocks(*axes: int) -> BlockVectors:
    """Return one block for each of these axes."""
    rows = np.eye(WIDTH, dtype=np.float32)[list(axes)]
    return BlockVectors(np.zeros((len(axes), 2), dtype=np.int64), rows)


# id -> text, angle of its vector from that of the query, blocks. The query has the blocks 0, 1, 2.
DOCUMENTS = {
    "near": ("court appeal", 10.0, blocks(5, 6)),
    "aligned": ("heron marsh", 40.0, blocks(0, 1, 2, 7)),
    "half": ("heron bolt", 30.0, blocks(0, 6)),
    "blockless": ("judge bolt", 20.0, None),
}
QUERY = EncodedQuery("heron marsh reed", direction(0.0), blocks=blocks(0, 1, 2))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    space = neutral_space(WIDTH)
    opened = open_data_directory(tmp_path, fingerprint="a" * 64, dimension=2, alignment=space)
    entries = [
        entry(name, text, direction(degrees), of_it)
        for name, (text, degrees, of_it) in DOCUMENTS.items()
    ]
    opened.index.apply(opened.store.put(entries))
    yield opened
    opened.close()


def find(
    data: DataDirectory,
    query: EncodedQuery = QUERY,
    mode: Mode = "semantic",
    alignment: AlignmentOptions | None = UNHURRIED,
    rule: LinearFusion = RULE,
) -> SearchAnswer:
    options = SearchOptions(top_k=9, mode=mode, alignment=alignment)
    return answer(data, query, options, rule)


def stored(data: DataDirectory, name: str) -> EncodedQuery:
    return stored_query(data, name, direction(DOCUMENTS[name][1]))


def expected_alignment(cosine: float) -> float:
    return min(1.0, max(0.0, 0.5 * cosine - 0.1))


def test_blocks_put_first_what_vectors_put_last(data: DataDirectory) -> None:
    assert names(find(data, alignment=None).hits) == ["near", "blockless", "half", "aligned"]
    assert names(find(data).hits)[0] == "aligned"


def test_scores_are_those_of_the_formula(data: DataDirectory) -> None:
    space = neutral_space(WIDTH)
    ours = space.project(blocks(0, 1, 2).vectors)
    for hit in find(data).hits:
        _, degrees, of_it = DOCUMENTS[hit.id]
        cosine = math.cos(math.radians(degrees))
        assert hit.vector_score == pytest.approx(cosine, abs=1e-6)
        if of_it is None:
            assert hit.alignment_score is None
            alignment = expected_alignment(cosine)
        else:
            (alignment,) = align(ours, [space.project(of_it.vectors)]).tolist()
            assert hit.alignment_score == pytest.approx(alignment, abs=1e-6)
        assert hit.semantic_score == pytest.approx(0.25 * cosine + 0.75 * alignment, abs=1e-6)
        assert hit.score == hit.semantic_score


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDirectory]:
    """150 documents, of which those with the nearest 25 vectors have blocks like the query's."""
    space, noise = neutral_space(WIDTH), np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("many")
    opened = open_data_directory(folder, fingerprint="a" * 64, dimension=2, alignment=space)
    entries = []
    for number in range(150):
        rows = np.eye(WIDTH)[[0, 1, 2] if number < 25 else [5, 6, 7]]
        rows = rows + noise.normal(scale=0.25, size=rows.shape)
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        kept = BlockVectors(np.zeros((3, 2), dtype=np.int64), rows)
        text = "heron marsh" + " bolt" * (number % 7)
        entries.append(entry(f"d{number}", text, direction(number / 4), kept))
    opened.index.apply(opened.store.put(entries))
    yield opened
    opened.close()


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_alignment_ends_when_the_best_are_known(many: DataDirectory, mode: Mode) -> None:
    rule = LinearFusion(0.25, 0.4, 0.4, expected_slope=0.5, expected_intercept=-0.1)
    every = find(many, mode=mode, alignment=replace(UNHURRIED, margin=math.inf), rule=rule)
    found = find(many, mode=mode, rule=rule)
    assert names(found.hits) == names(every.hits)
    assert [hit.score for hit in found.hits] == [hit.score for hit in every.hits]
    assert every.alignment is not None
    assert found.alignment is not None
    assert 25 <= found.alignment.scored < every.alignment.scored
    assert all(hit.alignment_score is not None for hit in found.hits)


def test_alignment_goes_on_while_others_may_come_first(many: DataDirectory) -> None:
    rule = LinearFusion(0.25, 0.95, 0.95)  # the first stage says nearly nothing
    found = find(many, rule=rule)
    assert found.alignment is not None
    assert found.alignment.scored > 25
    assert names(found.hits) == names(
        find(many, alignment=replace(UNHURRIED, margin=1e9), rule=rule).hits
    )


def test_hybrid_mode_weighs_semantic_and_lexical_scores(data: DataDirectory) -> None:
    found = find(data, mode="hybrid")
    assert found.alignment == AlignmentReceipt(True, 4, 3)
    for hit in found.hits:
        assert hit.lexical_score is not None
        expected = 0.75 * hit.semantic_score + 0.25 * hit.lexical_score
        assert hit.score == pytest.approx(expected, abs=1e-6)
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("budget", [0.0, 1e-9])
@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_out_of_budget_nothing_is_aligned(data: DataDirectory, mode: Mode, budget: float) -> None:
    found = find(data, mode=mode, alignment=AlignmentOptions(budget_seconds=budget))
    before = find(data, mode=mode, alignment=None)
    assert found.alignment == AlignmentReceipt(aligned=False, candidates=4, scored=0)
    assert found.hits == before.hits
    assert before.alignment is None


def test_a_stored_query_is_aligned_by_its_stored_blocks(data: DataDirectory) -> None:
    found = find(data, stored(data, "aligned"))
    assert names(found.hits)[0] == "half"
    by_text = replace(stored(data, "aligned"), blocks=blocks(0, 1, 2, 7))
    assert find(data, by_text).hits == found.hits


def test_a_stored_query_without_aligned_blocks_is_projected(data: DataDirectory) -> None:
    query = stored(data, "aligned")
    before = find(data, query)
    sql(
        data.store.alignment.path, "DELETE FROM aligned_blocks WHERE vector_id = ?", query.vector_id
    )
    assert find(data, query).hits == before.hits


def test_a_stored_query_without_blocks_is_not_aligned(data: DataDirectory) -> None:
    found = find(data, stored(data, "blockless"))
    assert found.alignment == AlignmentReceipt(aligned=False, candidates=3, scored=0)
    assert found.hits == find(data, stored(data, "blockless"), alignment=None).hits


def test_a_candidate_without_blocks_gets_the_expected_score(data: DataDirectory) -> None:
    vector_id = data.store.find(["half"])["half"].vector_id
    lost = "DELETE FROM aligned_blocks WHERE vector_id = ?"
    sql(data.store.alignment.path, lost, vector_id)
    found = find(data)
    assert found.alignment == AlignmentReceipt(True, 4, 2)
    assert sorted(names(found.hits)) == sorted(DOCUMENTS)
    (half,) = [hit for hit in found.hits if hit.id == "half"]
    alignment = expected_alignment(half.vector_score)
    assert half.semantic_score == pytest.approx(0.25 * half.vector_score + 0.75 * alignment)

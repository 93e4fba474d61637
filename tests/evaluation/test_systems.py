"""The systems of semantic, lexical and hybrid mode score as a search of a store does."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import AlignedBlocks, neutral_space
from encoder.arrays import Float32
from evaluation.systems import (
    ALIGNED,
    System,
    lexical_system,
    search_in_memory,
    search_system,
    vector_system,
)
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import AlignmentOptions, Mode, SearchOptions
from index.search.score import LinearFusion
from index.sqlite.block_vectors import as_stored
from index.store.records import EncodedDocument
from tests.kit.paragraphs import DIMENSION, entry_of

NUMBER = 30
RULE = LinearFusion(0.4, 0.6, 0.3, expected_slope=0.5, expected_intercept=0.1)
ENTRIES = [entry_of(f"d{n}", [n % 5, 10 + n % 7, 20 + n % 3]) for n in range(NUMBER)]
ROWS = np.arange(NUMBER, dtype=np.int64)


def vectors() -> Float32:
    return np.stack([entry.vector for entry in ENTRIES])


@pytest.fixture(scope="module")
def blocks() -> list[AlignedBlocks]:
    space = neutral_space(DIMENSION)
    vectors = [as_stored(entry.blocks.vectors) for entry in ENTRIES if entry.blocks is not None]
    return [space.project(vector) for vector in vectors]


@pytest.fixture(scope="module")
def vector() -> System:
    return vector_system("vector", "", vectors())


@pytest.fixture(scope="module")
def lexical() -> System:
    return lexical_system([entry.document.text for entry in ENTRIES])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDirectory]:
    opened = open_data_directory(
        tmp_path_factory.mktemp("aligned") / "data",
        fingerprint="a" * 64,
        dimension=DIMENSION,
        alignment=neutral_space(DIMENSION),
    )
    opened.index.apply(opened.store.put(ENTRIES))
    yield opened
    opened.close()


def served(data: DataDirectory, entry: EncodedDocument, mode: Mode) -> dict[str, float]:
    """Return the score of every other document in a search for a stored one."""
    stored = data.store.find([entry.document.id])[entry.document.id]
    answer = search(
        data,
        EncodedQuery(entry.document.text, entry.vector, vector_id=stored.vector_id),
        SearchOptions(top_k=NUMBER, mode=mode, alignment=AlignmentOptions(budget_seconds=600)),
        scoring=Scoring(RULE),
    )
    assert answer.alignment is not None
    assert answer.alignment.scored == NUMBER - 1
    return {hit.id: hit.score for hit in answer.hits}


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_a_search_gives_the_same_scores(
    data: DataDirectory, vector: System, lexical: System, blocks: list[AlignedBlocks], mode: Mode
) -> None:
    system = search_system(vector, lexical if mode == "hybrid" else None, blocks, RULE, mode)
    scores = system.score(ROWS[:4])
    for row in range(4):
        found = served(data, ENTRIES[row], mode)
        assert set(found) == {entry.document.id for entry in ENTRIES} - {f"d{row}"}
        for other in range(NUMBER):
            if other != row:
                assert found[f"d{other}"] == pytest.approx(float(scores[row, other]), abs=1e-5)


def test_pairs_have_the_scores_of_the_table(
    vector: System, lexical: System, blocks: list[AlignedBlocks]
) -> None:
    sources, targets = np.array([0, 3, 7, 0]), np.array([9, 4, 0, 2])
    for system in (
        search_system(vector, None, blocks, RULE, "semantic"),
        search_system(vector, lexical, blocks, RULE, "hybrid"),
        search_system(vector, lexical, None, RULE, "hybrid"),
    ):
        expected = system.score(sources)[np.arange(4), targets]
        np.testing.assert_allclose(system.score_pairs(sources, targets), expected, atol=1e-6)


def test_only_the_best_candidates_are_aligned_not_the_query(
    vector: System, blocks: list[AlignedBlocks]
) -> None:
    first = np.random.default_rng(1).normal(size=(3, NUMBER - 1)).astype(np.float32)
    rows = np.array([4, 0, NUMBER - 1])  # the last is a query that is no document
    first[0, 4] = first[1, 0] = 9.0
    given, unaligned = replace(vector, score=lambda _: first), LinearFusion(0.0)
    best_five = replace(ALIGNED, candidates=5)
    scores, found = search_in_memory(given, None, blocks, rows, unaligned, best_five)
    for number, row in enumerate(rows.tolist()):
        others = [other for other in np.argsort(-first[number]).tolist() if other != row]
        best = others[:5]
        assert set(np.flatnonzero(~np.isnan(found[number])).tolist()) == set(best)
        expected = align(blocks[row], [blocks[candidate] for candidate in best])
        np.testing.assert_array_equal(found[number, best], expected)
        np.testing.assert_array_equal(scores[number, others], first[number, others])
    assert scores[0, 4] == scores[1, 0] == -np.inf
    _, every = search_in_memory(vector, None, blocks, ROWS, unaligned)
    assert np.array_equal(np.isnan(every), np.eye(NUMBER, dtype=bool))


def test_without_blocks_nothing_is_aligned(vector: System, lexical: System) -> None:
    cosines, words = vectors() @ vectors().T, lexical.score(ROWS)
    expected = np.clip(0.5 * cosines + 0.1, 0, 1)
    others = ~np.eye(NUMBER, dtype=bool)
    system = search_system(vector, None, None, RULE, "semantic")
    found = system.score(ROWS)[others]
    np.testing.assert_allclose(found, (0.7 * cosines + 0.3 * expected)[others], atol=1e-6)
    semantic = 0.4 * cosines + 0.6 * expected
    unaligned = search_system(vector, lexical, None, RULE, "unaligned hybrid")
    found = unaligned.score(ROWS)[others]
    np.testing.assert_allclose(found, (0.6 * semantic + 0.4 * words)[others], atol=1e-6)
    assert (unaligned.name, "not aligned" in unaligned.settings) == ("unaligned hybrid", True)

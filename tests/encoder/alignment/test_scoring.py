"""The alignment score: its formula, symmetry and bounds, for one pair and for many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.alignment.scoring import align, align_pairs, own_similarity, similarities
from encoder.alignment.space import AlignedBlocks, AlignmentSpace, fit_space
from tests.encoder.alignment.test_space import WIDTH, block_vectors, dequantised

SPACE: AlignmentSpace = fit_space(block_vectors(2_000), dimension=WIDTH)


def document(blocks: int, seed: int) -> AlignedBlocks:
    return SPACE.project(block_vectors(blocks, seed=seed))


def slow_score(left: AlignedBlocks, right: AlignedBlocks) -> float:
    """Compute the formula of the module, one pair of blocks at a time."""
    ours, theirs = dequantised(left).astype(float), dequantised(right).astype(float)
    table = [
        [
            float(one @ other) - (float(left.hubness[i]) + float(right.hubness[j])) / 2
            for j, other in enumerate(theirs)
        ]
        for i, one in enumerate(ours)
    ]
    rows = [max(0.0, max(row)) for row in table]
    columns = [max(0.0, max(column)) for column in zip(*table, strict=True)]
    own = [1 - float(one.hubness.mean()) for one in (left, right)]
    both = sum(rows) / len(rows) + sum(columns) / len(columns)
    return float(both / 2 / np.sqrt(own[0] * own[1]))


@given(st.lists(st.integers(1, 12), min_size=2, max_size=5), st.integers(0, 1_000))
def test_it_is_the_formula(lengths: list[int], seed: int) -> None:
    query, *others = (document(count, seed + n) for n, count in enumerate(lengths))
    expected = [slow_score(query, one) for one in others]
    assert np.allclose(align(query, others), expected, atol=1e-5)


def test_it_is_symmetric() -> None:
    one, other = document(7, 1), document(12, 2)
    assert align(one, [other])[0] == pytest.approx(align(other, [one])[0], abs=1e-6)


def test_it_does_not_depend_on_the_other_candidates() -> None:
    query, others = document(9, 0), [document(count, count) for count in (3, 1, 20, 5)]
    together = align(query, others)
    alone = [align(query, [one])[0] for one in others]
    assert np.allclose(together, alone, atol=1e-6)


def test_it_is_highest_for_the_document_itself_and_never_negative() -> None:
    query, others = document(9, 0), [document(9, seed) for seed in range(1, 30)]
    scores = align(query, [query, *others])
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[1:].max() < 1.0
    assert scores.min() >= 0.0


def test_documents_of_nothing_but_hubs_have_a_score() -> None:
    space = fit_space(np.repeat(block_vectors(1), 2_000, axis=0), dimension=WIDTH)
    alike = space.project(np.repeat(block_vectors(1), 5, axis=0))
    (score,) = align(alike, [alike]).tolist()
    assert 0.0 <= score <= 1.0


def test_a_shared_block_raises_the_score() -> None:
    ours, theirs = block_vectors(6, seed=1), block_vectors(6, seed=2)
    before = align(SPACE.project(ours), [SPACE.project(theirs)])[0]
    theirs[4] = ours[2]
    assert align(SPACE.project(ours), [SPACE.project(theirs)])[0] > before + 0.05


def test_without_candidates_there_are_no_scores() -> None:
    assert align(document(3, 0), []).shape == (0,)


def test_the_similarities_of_blocks_are_those_that_are_summed() -> None:
    one, other = document(4, 1), document(6, 2)
    table = similarities(one, other)
    assert table.shape == (4, 6)
    both = np.maximum(table.max(1), 0).mean() + np.maximum(table.max(0), 0).mean()
    score = both / 2 / np.sqrt(own_similarity(one) * own_similarity(other))
    assert align(one, [other])[0] == pytest.approx(score, abs=1e-6)


def test_pairs_score_as_a_query_and_its_candidate() -> None:
    documents = [document(count, count) for count in (3, 8, 1, 5)]
    pairs = np.array([[2, 0], [0, 1], [3, 3], [0, 2], [2, 1]])
    done: list[int] = []
    scores = align_pairs(documents, pairs, done.append)
    expected = [align(documents[a], [documents[b]])[0] for a, b in pairs.tolist()]
    assert np.allclose(scores, expected, atol=1e-6)
    assert sum(done) == len(pairs)


def test_pairs_of_documents_without_blocks_have_no_score() -> None:
    documents = [document(3, 1), None, document(2, 2)]
    pairs = np.array([[0, 1], [1, 0], [0, 2]])
    scores = align_pairs(documents, pairs, lambda _: None)
    assert np.isnan(scores).tolist() == [True, True, False]
    assert align_pairs(documents, pairs[:0], lambda _: None).shape == (0,)

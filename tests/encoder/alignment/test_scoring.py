"""The alignment score: its formula, symmetry and bounds, for one pair and for many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.alignment import scoring
from encoder.alignment.space import AlignedBlocks, AlignmentSpace, fit_space, neutral_space
from tests.encoder.alignment.test_space import WIDTH, block_vectors, dequantised

SPACE: AlignmentSpace = fit_space(block_vectors(2_000), dimension=WIDTH)


def document(blocks: int, seed: int) -> AlignedBlocks:
    return SPACE.project(block_vectors(blocks, seed=seed))


def slow_score(left: AlignedBlocks, right: AlignedBlocks) -> float:
    """Compute the formula of the module, one pair of blocks at a time."""
    ours, theirs = dequantised(left).astype(float), dequantised(right).astype(float)
    table = [
        [
            float(our @ other) - (float(left.hubness[i]) + float(right.hubness[j])) / 2
            for j, other in enumerate(theirs)
        ]
        for i, our in enumerate(ours)
    ]
    rows = [max(0.0, max(row)) for row in table]
    columns = [max(0.0, max(column)) for column in zip(*table, strict=True)]
    own = [1 - float(side.hubness.mean()) for side in (left, right)]
    both = sum(rows) / len(rows) + sum(columns) / len(columns)
    return float(both / 2 / np.sqrt(own[0] * own[1]))


@given(st.lists(st.integers(1, 12), min_size=2, max_size=5), st.integers(0, 1_000))
def test_it_is_the_formula(lengths: list[int], seed: int) -> None:
    query, *others = (document(count, seed + n) for n, count in enumerate(lengths))
    expected = [slow_score(query, other) for other in others]
    assert np.allclose(scoring.align(query, others), expected, atol=1e-5)


def test_scores_are_highest_for_the_document_itself() -> None:
    query, others = document(9, 0), [document(9, seed) for seed in range(1, 30)]
    scores = scoring.align(query, [query, *others])
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[1:].max() < 1.0
    assert scores.min() >= 0.0
    assert scoring.align(query, []).shape == (0,)
    assert max(float(scoring.align(other, [other])[0]) for other in others) <= 1.0


def test_blocks_of_common_text_count_as_if_they_were_not_there() -> None:
    query, own, common = document(4, 1), document(5, 1), document(3, 3)  # 4 blocks are equal
    both = (np.concatenate([own.codes, common.codes]), np.concatenate([own.scales, common.scales]))
    joined = AlignedBlocks(*both, np.append(own.hubness, [np.float32(scoring.COMMON_HUBNESS)] * 3))
    expected = scoring.align(query, [own])
    assert expected > 0.5
    assert scoring.align(query, [joined]) == pytest.approx(expected, abs=1e-6)
    assert scoring.align(joined, [query]) == pytest.approx(expected, abs=1e-6)


def test_documents_of_nothing_but_hubs_have_a_score() -> None:
    space = fit_space(np.repeat(block_vectors(1), 2_000, axis=0), dimension=WIDTH)
    alike = space.project(np.repeat(block_vectors(1), 5, axis=0))
    (score,) = scoring.align(alike, [alike]).tolist()
    assert 0.0 <= score <= 1.0


def test_pairs_score_as_a_query_and_its_candidate() -> None:
    documents = [document(count, count) for count in (3, 8, 1, 5)]
    pairs = np.array([[2, 0], [0, 1], [3, 3], [0, 2], [2, 1]])
    done: list[int] = []
    scores = scoring.align_pairs(documents, pairs, done.append)
    expected = [scoring.align(documents[a], [documents[b]])[0] for a, b in pairs.tolist()]
    assert np.allclose(scores, expected, atol=1e-6)
    assert sum(done) == len(pairs)


def test_pairs_of_documents_without_blocks_have_no_score() -> None:
    documents = [document(3, 1), None, document(2, 2)]
    pairs = np.array([[0, 1], [1, 0], [0, 2]])
    scores = scoring.align_pairs(documents, pairs, lambda _: None)
    assert np.isnan(scores).tolist() == [True, True, False]
    assert scoring.align_pairs(documents, pairs[:0], lambda _: None).shape == (0,)


CLOSE = 1e-6


def slow_shares(left: AlignedBlocks, right: AlignedBlocks) -> dict[tuple[int, int], float]:
    """Give each term of the score to its pair, one at a time."""
    table = scoring.similarities(left, [right]).astype(float)
    given: dict[tuple[int, int], float] = {}
    for i in range(len(left)):
        j = max(range(len(right)), key=lambda number: table[i, number])
        given[i, j] = given.get((i, j), 0.0) + max(0.0, table[i, j]) / (2 * len(left))
    for j in range(len(right)):
        i = max(range(len(left)), key=lambda number: table[number, j])
        given[i, j] = given.get((i, j), 0.0) + max(0.0, table[i, j]) / (2 * len(right))
    total = sum(given.values())
    return {pair: amount / total for pair, amount in given.items() if amount > 0}


def by_pair(found: scoring.Contributions) -> dict[tuple[int, int], float]:
    shares = found.shares.tolist()
    return {(i, j): share for (i, j), share in zip(found.pairs.tolist(), shares, strict=True)}


def axes(*numbers: float) -> AlignedBlocks:
    """Return blocks that are one of 4 axes, or the opposite one where the number is negative."""
    rows = [
        np.eye(4, dtype=np.float32)[int(abs(number)) - 1] * np.sign(number) for number in numbers
    ]
    return neutral_space(4).project(np.array(rows, dtype=np.float32))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1_000))
def test_contributions_are_the_formula(ours: int, theirs: int, seed: int) -> None:
    left, right = document(ours, seed), document(theirs, seed + 1)
    found = scoring.find_contributions(left, right)
    assert found.score == pytest.approx(float(scoring.align(left, [right])[0]), abs=CLOSE)
    assert by_pair(found) == pytest.approx(slow_shares(left, right), abs=CLOSE)
    assert (found.shares[:-1] >= found.shares[1:]).all()
    table = scoring.similarities(left, [right])
    assert [table[i, j] for i, j in found.pairs.tolist()] == found.similarities.tolist()
    if found.score:
        assert found.shares.sum() == pytest.approx(1.0)


def test_of_equal_pairs_the_first_has_the_term() -> None:
    found = scoring.find_contributions(axes(1, 1), axes(1))
    assert found.pairs.tolist() == [[0, 0], [1, 0]]
    assert found.shares.tolist() == pytest.approx([0.75, 0.25])


def test_nothing_gives_to_a_score_of_zero() -> None:
    found = scoring.find_contributions(axes(1, 2), axes(-1, -2))
    assert (found.score, len(found.pairs), len(found.shares)) == (0.0, 0, 0)

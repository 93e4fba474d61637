"""What pairs of blocks give to the alignment score: all of it, each term to the pair it is from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.alignment.contributions import Contributions, find_contributions
from encoder.alignment.scoring import align, similarities
from encoder.alignment.space import MAX_BLOCKS, AlignedBlocks, neutral_space
from tests.encoder.alignment.test_scoring import document

CLOSE = 1e-6


def slow_shares(left: AlignedBlocks, right: AlignedBlocks) -> dict[tuple[int, int], float]:
    """Give each term of the score to its pair, one at a time."""
    table = similarities(left, right).astype(float)
    given: dict[tuple[int, int], float] = {}
    for i in range(len(left)):
        j = max(range(len(right)), key=lambda one: table[i, one])
        given[i, j] = given.get((i, j), 0.0) + max(0.0, table[i, j]) / (2 * len(left))
    for j in range(len(right)):
        i = max(range(len(left)), key=lambda one: table[one, j])
        given[i, j] = given.get((i, j), 0.0) + max(0.0, table[i, j]) / (2 * len(right))
    total = sum(given.values())
    return {pair: amount / total for pair, amount in given.items() if amount > 0}


def by_pair(found: Contributions) -> dict[tuple[int, int], float]:
    shares = found.shares.tolist()
    return {(i, j): share for (i, j), share in zip(found.pairs.tolist(), shares, strict=True)}


def axes(*numbers: float) -> AlignedBlocks:
    """Return blocks that are one of 4 axes, or the opposite one where the number is negative."""
    rows = [np.eye(4, dtype=np.float32)[int(abs(one)) - 1] * np.sign(one) for one in numbers]
    return neutral_space(4).project(np.array(rows, dtype=np.float32))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1_000))
def test_it_is_the_formula(ours: int, theirs: int, seed: int) -> None:
    left, right = document(ours, seed), document(theirs, seed + 1)
    found = find_contributions(left, right)
    assert found.score == pytest.approx(float(align(left, [right])[0]), abs=CLOSE)
    assert by_pair(found) == pytest.approx(slow_shares(left, right), abs=CLOSE)
    assert (found.shares[:-1] >= found.shares[1:]).all()
    table = similarities(left, right)
    assert [table[i, j] for i, j in found.pairs.tolist()] == found.similarities.tolist()
    if found.score:
        assert found.shares.sum() == pytest.approx(1.0)


def test_a_single_pair_has_all_of_the_score() -> None:
    found = find_contributions(axes(1), axes(1))
    assert by_pair(found) == {(0, 0): 1.0}
    assert found.score == pytest.approx(1.0, abs=CLOSE)
    assert found.similarities.tolist() == pytest.approx([1.0])


def test_a_single_block_has_the_best_of_the_other_and_is_the_best_of_all() -> None:
    found = find_contributions(axes(1), axes(2, 1, -1))
    assert by_pair(found) == {(0, 1): 1.0}
    assert found.score == pytest.approx((1 + 1 / 3) / 2, abs=CLOSE)


def test_of_equal_pairs_the_first_has_the_term() -> None:
    found = find_contributions(axes(1, 1), axes(1))
    assert found.pairs.tolist() == [[0, 0], [1, 0]]
    assert found.shares.tolist() == pytest.approx([0.75, 0.25])


def test_nothing_gives_to_a_score_of_zero() -> None:
    found = find_contributions(axes(1, 2), axes(-1, -2))
    assert (found.score, len(found.pairs), len(found.shares)) == (0.0, 0, 0)


def test_the_longest_documents() -> None:
    left, right = document(1_024, 1), document(1_024, 2)
    assert len(left) == MAX_BLOCKS
    found = find_contributions(left, right)
    assert found.score == pytest.approx(float(align(left, [right])[0]), abs=CLOSE)
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.pairs.max() < MAX_BLOCKS
    assert len(found.pairs) <= 2 * MAX_BLOCKS - 1

"""Runs of matching blocks: along the diagonals, with gaps of one, in any order."""

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from encoder.comparison.block_matches import Background, match_blocks, measure_background

NONE = Background(0.1, 0.2)


def cosines(size: int, *pairs: tuple[int, int]) -> Float32:
    table = np.full((size, size), 0.1, dtype=np.float32)
    for pair in pairs:
        table[pair] = 0.9
    return table


def numbers(size: int) -> tuple[Int64, Int64]:
    """Number the blocks of two texts that were encoded whole."""
    return np.arange(size), np.arange(size)


def runs(table: Float32) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    every = np.ones(table.shape, dtype=bool)
    return [(run.left, run.right) for run in match_blocks(table, 0.5, every, numbers(len(table)))]


def test_neighbours_on_a_diagonal_are_one_run() -> None:
    assert runs(cosines(6, (1, 2), (2, 3), (3, 4))) == [((1, 4), (2, 5))]


def test_a_gap_of_one_is_bridged_and_of_two_is_not() -> None:
    assert runs(cosines(7, (0, 0), (2, 2))) == [((0, 3), (0, 3))]
    assert runs(cosines(7, (0, 0), (3, 3))) == [((0, 1), (0, 1)), ((3, 4), (3, 4))]


def test_blocks_that_were_not_encoded_end_a_run() -> None:
    table = cosines(4, (0, 0), (1, 1), (2, 2), (3, 3))
    every = np.ones(table.shape, dtype=bool)
    left = np.array([0, 1, 4, 5])
    found = match_blocks(table, 0.5, every, (left, np.arange(4)))
    assert [(run.left, run.right) for run in found] == [((0, 2), (0, 2)), ((2, 4), (2, 4))]


def test_runs_may_stand_in_another_order() -> None:
    table = cosines(6, (0, 3), (1, 4), (3, 0), (4, 1))
    assert runs(table) == [((0, 2), (3, 5)), ((3, 5), (0, 2))]


def test_only_the_best_of_row_and_column_matches() -> None:
    table = cosines(3, (0, 0))
    table[1, 0] = 0.95
    assert runs(table) == [((1, 2), (0, 1))]


def test_the_score_is_the_mean_and_unusable_pairs_are_left_out() -> None:
    table = cosines(3, (0, 0), (1, 1))
    table[1, 1] = 0.7
    (run,) = match_blocks(table, 0.5, np.ones((3, 3), dtype=bool), numbers(3))
    assert run.score == pytest.approx(0.8)
    usable = np.ones((3, 3), dtype=bool)
    usable[0] = False
    (run,) = match_blocks(table, 0.5, usable, numbers(3))
    assert run.left == (1, 2)
    assert match_blocks(table, 0.95, usable, numbers(3)) == []


def test_the_background_is_that_of_blocks_that_do_not_match() -> None:
    draw = np.random.default_rng(1)
    common = draw.normal(size=64)
    vectors = (draw.normal(size=(40, 64)) + common).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = measure_background(vectors[:20], vectors[10:], NONE)  # ten blocks in both
    assert 0.4 < found.centre < 0.6
    assert found.spread < 0.15
    assert found.threshold(3.0, 0.2) > found.centre + 2 * found.spread
    assert found.threshold(0.0, 0.99) == 0.99


def test_short_texts_have_no_background_of_their_own() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert measure_background(vectors, vectors, NONE) is NONE

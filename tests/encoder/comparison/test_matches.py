"""Exact matches: all that is shared, with its boundaries, in linear time."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32, Int64
from encoder.comparison.matches import (
    Background,
    Box,
    find_exact_matches,
    match_blocks,
    measure_background,
    merge_spans,
)
from encoder.comparison.words import locate_words as words

SHINGLE = 3


def test_a_shared_passage_has_its_boundaries() -> None:
    left = words("one two three four five six seven")
    right = words("zero Three, four; FIVE six eight")
    (match,) = find_exact_matches(left, right, SHINGLE)
    assert match == (2, 1, 4)


def test_what_one_text_repeats_is_found_at_each_place() -> None:
    left, right = words("a b c d"), words("a b c d x a b c d")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 0, 4), (0, 5, 4)]
    assert find_exact_matches(right, left, SHINGLE) == [(0, 0, 4), (5, 0, 4)]


def test_the_longest_of_several_places_is_taken() -> None:
    left, right = words("a b c d e f"), words("a b c x a b c d e f")
    assert (0, 4, 6) in find_exact_matches(left, right, SHINGLE)


def test_a_match_may_begin_inside_the_one_before() -> None:
    left, right = words("a b c d e y b c d e"), words("a b c x b c d e")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 0, 3), (1, 4, 4), (6, 4, 4)]


TEXTS = st.lists(st.sampled_from("abcde"), max_size=40).map(" ".join)


@given(TEXTS, TEXTS)
def test_every_shared_word_is_matched_and_every_match_is_equal(left: str, right: str) -> None:
    ours, theirs = left.split(), right.split()
    found = find_exact_matches(words(left), words(right), SHINGLE)
    for match in found:
        assert match.length >= SHINGLE
        mine = ours[match.left : match.left + match.length]
        assert mine == theirs[match.right : match.right + match.length]
    for text, other, side in ((ours, theirs, 0), (theirs, ours, 1)):
        rows = {tuple(other[n : n + SHINGLE]) for n in range(len(other) - SHINGLE + 1)}
        shared = {
            place + word
            for place in range(len(text) - SHINGLE + 1)
            if tuple(text[place : place + SHINGLE]) in rows
            for word in range(SHINGLE)
        }
        matched = {match[side] + word for match in found for word in range(match.length)}
        assert matched == shared


def test_hostile_text_takes_linear_time() -> None:
    for text in ("a " * 100_000, "a b " * 50_000, " ".join(str(n) for n in range(100_000))):
        started = time.process_time()
        find_exact_matches(words(text), words(text + "x " + text[: len(text) // 2]), 8)
        assert time.process_time() - started < 60.0


def test_boxes_are_joined_over_gaps_of_both_texts() -> None:
    first = Box(0, 10, 0, 10)
    assert merge_spans([first, Box(12, 15, 12, 14)], 2) == [Box(0, 15, 0, 14)]
    for apart in (Box(13, 15, 12, 14), Box(12, 15, 13, 14)):
        assert merge_spans([first, apart], 2) == [first, apart]
    inner = Box(2, 4, 2, 4)  # it ends before the first, which reaches on
    assert merge_spans([first, inner, Box(11, 12, 11, 12)], 2) == [Box(0, 12, 0, 12)]


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


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 2), (2, 3), (3, 4)], [((1, 4), (2, 5))]),
        ([(0, 0), (2, 2)], [((0, 3), (0, 3))]),  # a gap of one is bridged
        ([(0, 0), (3, 3)], [((0, 1), (0, 1)), ((3, 4), (3, 4))]),
        ([(0, 3), (1, 4), (3, 0), (4, 1)], [((0, 2), (3, 5)), ((3, 5), (0, 2))]),
    ],
)
def test_neighbours_on_a_diagonal_are_one_run(
    pairs: list[tuple[int, int]], expected: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    assert runs(cosines(7, *pairs)) == expected


def test_blocks_that_were_not_encoded_end_a_run() -> None:
    table = cosines(4, (0, 0), (1, 1), (2, 2), (3, 3))
    every = np.ones(table.shape, dtype=bool)
    left = np.array([0, 1, 4, 5])
    found = match_blocks(table, 0.5, every, (left, np.arange(4)))
    assert [(run.left, run.right) for run in found] == [((0, 2), (0, 2)), ((2, 4), (2, 4))]


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
    assert measure_background(vectors[:4], vectors[:4], NONE) is NONE  # too short

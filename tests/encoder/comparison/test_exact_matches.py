"""Exact matches: all that is shared, with its boundaries, in linear time."""

import time

from hypothesis import given
from hypothesis import strategies as st

from encoder.comparison.exact_matches import find_exact_matches
from encoder.comparison.words import Words, find_words

SHINGLE = 3


def words(text: str) -> Words:
    return find_words(text)


def test_a_shared_passage_has_its_boundaries() -> None:
    left = words("one two three four five six seven")
    right = words("zero Three, four; FIVE six eight")
    (match,) = find_exact_matches(left, right, SHINGLE)
    assert match == (2, 1, 4)


def test_passages_in_another_order_are_found_each() -> None:
    left = words("a b c d x e f g h")
    right = words("e f g h y a b c d")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 5, 4), (5, 0, 4)]


def test_what_one_text_repeats_is_found_at_each_place() -> None:
    left, right = words("a b c d"), words("a b c d x a b c d")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 0, 4), (0, 5, 4)]
    assert find_exact_matches(right, left, SHINGLE) == [(0, 0, 4), (5, 0, 4)]


def test_shorter_than_a_shingle_is_nothing() -> None:
    assert find_exact_matches(words("a b"), words("a b"), SHINGLE) == []
    assert find_exact_matches(words(""), words("a b c"), SHINGLE) == []


def test_the_longest_of_several_places_is_taken() -> None:
    left, right = words("a b c d e f"), words("a b c x a b c d e f")
    assert (0, 4, 6) in find_exact_matches(left, right, SHINGLE)


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
        assert time.process_time() - started < 40.0

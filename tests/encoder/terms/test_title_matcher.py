"""Which titles a run of tokens names."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from encoder.terms.title_matcher import (
    MAX_TITLE_TOKENS,
    NO_TITLES,
    TitleMatcher,
    hash_runs,
    match_token_titles,
    token_items,
)

TOKENS = st.lists(st.integers(0, 3), max_size=30)
TITLES = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8)


def found(table: TitleMatcher, tokens: list[int]) -> set[int]:
    runs = table.find(token_items(np.array(tokens, dtype=np.int64)))
    return {hashed for _, _, hashes in runs for hashed in hashes.tolist()}


def test_different_titles_have_different_hashes() -> None:
    titles = [[0], [0, 0], [0, 0, 0], [1, 0], [0, 1], [2**31, 5], [5, 2**31]]
    table = match_token_titles([*titles, *titles, []])
    assert len(table) == len(titles)
    assert table.lengths.tolist() == [1, 2, 3]
    assert (np.diff(table.hashes.astype(object)) > 0).all()


def test_a_title_that_is_too_long_is_left_out() -> None:
    longest = list(range(MAX_TITLE_TOKENS))
    assert found(match_token_titles([longest]), [7, *longest, 7])
    assert not len(match_token_titles([[*longest, 7]]))
    for tokens in ([], [1], [1, 2, 3]):
        assert found(NO_TITLES, tokens) == found(match_token_titles([[5, 6]]), tokens) == set()


def test_of_some_titles_only_they_are_found() -> None:
    table = match_token_titles([[1], [2, 3], [4]])
    kept = np.array([True, False, True])
    assert found(table.only(kept), [1, 2, 3, 4]) == set(table.hashes[kept].tolist())
    assert found(table.only(np.zeros(3, dtype=np.bool_)), [1, 2, 3, 4]) == set()


@given(TITLES, TOKENS)
def test_a_title_is_found_at_its_places(titles: list[list[int]], tokens: list[int]) -> None:
    table = match_token_titles(titles)
    places = [
        (int(match_token_titles([title]).hashes[0]), len(title), start)
        for title in {tuple(title) for title in titles if title}
        for start in range(len(tokens) - len(title) + 1)
        if tokens[start : start + len(title)] == list(title)
    ]
    assert sorted(
        (hashed, length, start)
        for length, starts, hashes in table.find(token_items(np.array(tokens, dtype=np.int64)))
        for start, hashed in zip(starts.tolist(), hashes.tolist(), strict=True)
    ) == sorted(places)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9), st.integers(1, 9))
def test_a_run_is_hashed_with_its_length(items: list[int], length: int) -> None:
    """As stored signatures of near-duplicates have it."""
    expected = []
    for start in range(len(items) - length + 1):
        hashed = length
        for item in items[start : start + length]:
            hashed = (hashed * 0x9E3779B97F4A7C15 + item) % 2**64
        expected.append(hashed)
    assert hash_runs(np.array(items, dtype=np.uint64), length).tolist() == expected
